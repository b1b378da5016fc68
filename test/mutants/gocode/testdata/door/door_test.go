package door

import "testing"

func TestIsAdult(t *testing.T) {
	for age, want := range map[int]bool{17: false, 19: true} {
		if got := IsAdult(age); got != want {
			t.Errorf("IsAdult(%d) = %v", age, got)
		}
	}
}

func TestRooms(t *testing.T) {
	for visitors, want := range map[int]int{3: 2, 4: 2} {
		if got := Rooms(visitors); got != want {
			t.Errorf("Rooms(%d) = %d", visitors, got)
		}
	}
}
