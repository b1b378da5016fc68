// Package house has doors.
package house

import "plimsoll.dev/plimsoll/test/mutants/gocode/testdata/door"

// Fees returns the fees of two groups.
func Fees(a, b int) int {
	return door.Fee(a) + door.Fee(b)
}

var _ [1]bool = door.Size()
