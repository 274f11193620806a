package view

import "time"

// Clock is a moment for people who are at the same place: the time of day, with the date when that is another.
func Clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	format := "15:04"
	if t.Second() != 0 && t.Sub(now).Abs() < 10*time.Minute {
		format = "15:04:05"
	}
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		format = "2006-01-02 " + format
	}
	return t.Format(format)
}
