// Package door decides who may enter.
package door

// IsAdult reports whether a visitor of this age may enter alone. Its test does not try the age 18.
func IsAdult(age int) bool {
	return age >= 18
}

// Fee returns the fee of a group. Only the tests of the package house notice a change.
func Fee(visitors int) int {
	return visitors + 2
}

// Rooms returns how many rooms a group needs.
func Rooms(visitors int) int {
	rooms := 0
	for visitors > 0 {
		visitors -= 2
		rooms++
	}
	return rooms
}

// Size returns a constant that package house needs to be 1.
func Size() [size]bool { return [size]bool{} }

const size = 1
