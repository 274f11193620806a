//go:build race

package breaker

// schedules is how many the model is tried with: the race detector takes ten times as long for each.
const schedules = 1_000
