//go:build race

package query

// raceDetector slows down the decoding of large responses by an order of magnitude, beyond the
// deadlines of the tests. make test-unit runs them once without it.
const raceDetector = true
