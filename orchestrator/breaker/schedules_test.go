//go:build !race

package breaker

// schedules is how many the model is tried with.
const schedules = 10_000
