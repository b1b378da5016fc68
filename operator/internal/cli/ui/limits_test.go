package ui

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestStreamsAreLimited(t *testing.T) {
	s := streams{byUser: map[user]int{}}
	ann := userOf("ann")
	for range maxUserStreams {
		if !s.begin(ann) {
			t.Fatal("a stream is refused")
		}
	}
	if s.begin(ann) {
		t.Error("a user has more streams than one may")
	}
	if !s.begin(userOf("bob")) {
		t.Error("the streams of ann keep out bob")
	}
	s.end(ann)
	if !s.begin(ann) {
		t.Error("an ended stream counts")
	}
	for i := 0; s.all < maxStreams; i++ {
		s.begin(userOf(strconv.Itoa(i)))
	}
	if s.begin(userOf("carol")) {
		t.Error("there are more streams than may be")
	}
}

func TestSnapshotsAreLimitedAndExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := snapshots{refresh: time.Minute, byUser: map[user]*snapshot{}}
		first, ok := s.of(userOf(""))
		if again, _ := s.of(userOf("")); !ok || again != first {
			t.Error("requests of a user do not share a snapshot")
		}
		for i := range maxSnapshots - 1 {
			s.of(userOf(strconv.Itoa(i)))
		}
		if _, ok := s.of(userOf("last")); ok {
			t.Error("there are more snapshots than may be")
		}
		first.keep(2 * time.Minute) // a slow read
		time.Sleep(90 * time.Second)
		if n := s.count(); n != 1 {
			t.Errorf("%d snapshots are kept", n)
		}
		if again, _ := s.of(userOf("")); again != first {
			t.Error("a snapshot with a slow read expires early")
		}
		time.Sleep(time.Minute)
		if s.count() != 0 {
			t.Error("an expired snapshot is kept")
		}
	})
}

// A read that fails is not repeated for the same snapshot, and goes on when the request that began it ends.
func TestSnapshotRemembers(t *testing.T) {
	s := snapshots{refresh: time.Hour, byUser: map[user]*snapshot{}}
	snapshot, _ := s.of(userOf(""))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reads, failure := 0, errors.New("refused")
	for range 2 {
		_, err := remember(ctx, snapshot, "list", func(ctx context.Context) (int, error) {
			reads++
			return 0, errors.Join(failure, ctx.Err())
		})
		if !errors.Is(err, failure) || errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
	if reads != 1 {
		t.Errorf("%d reads", reads)
	}
}

func TestKeysOfTheBrowserAreValidOnce(t *testing.T) {
	k := newKeyAccess(1)
	once := k.issueOnce()
	if !k.isValid(k.key) || !k.isValid(k.key) || k.isValid("") || k.isValid("x") {
		t.Error("the printed key")
	}
	if !k.isValid(once) || k.isValid(once) || k.isValid("") {
		t.Error("the key of the browser's command line")
	}
}

func (s *snapshots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byUser)
}
