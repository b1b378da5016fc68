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
		streaming := streams{byUser: map[user]int{}}
		s := snapshots{refresh: time.Minute, now: time.Now, streams: &streaming, byUser: map[user]*snapshot{}}
		first, ok := s.of(userOf(""))
		if again, _ := s.of(userOf("")); !ok || again != first {
			t.Error("requests of a user do not share a snapshot")
		}
		streaming.begin(userOf(""))
		for i := range maxSnapshots - 1 {
			time.Sleep(time.Millisecond)
			s.of(userOf(strconv.Itoa(i)))
			streaming.begin(userOf(strconv.Itoa(i)))
		}
		if _, ok := s.of(userOf("last")); ok || s.count() != maxSnapshots {
			t.Error("there are more snapshots than may be")
		}
		streaming.end(userOf("7"))
		streaming.end(userOf("3"))
		if _, ok := s.of(userOf("last")); !ok || s.byUser[userOf("3")] != nil || s.byUser[userOf("7")] == nil || s.count() != maxSnapshots {
			t.Error("the oldest snapshot without a stream does not make room")
		}
		time.Sleep(50 * time.Second)
		first.keep(80 * time.Second) // a slow read, which began 20 s after the first one
		time.Sleep(20 * time.Second)
		if again, _ := s.of(userOf("")); again != first || s.count() != 1 {
			t.Errorf("a snapshot with a slow read expires early, or one of %d others is kept", s.count())
		}
		for range 5 {
			time.Sleep(9 * time.Second)
			first.keep(time.Hour) // reads of other pages
		}
		time.Sleep(maxAge - 110*time.Second)
		if s.count() != 0 {
			t.Error("a snapshot gets older than it may")
		}
	})
}

// A read that takes longer than the refresh time is not begun again beside itself.
func TestSnapshotsWaitForReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := snapshots{refresh: time.Second, now: time.Now, streams: &streams{byUser: map[user]int{}}, byUser: map[user]*snapshot{}}
		first, _ := s.of(userOf(""))
		_, err := remember(t.Context(), first, "slow", func(context.Context) (int, error) {
			time.Sleep(5 * time.Second)
			return 1, nil
		})
		if again, _ := s.of(userOf("")); err != nil || again != first {
			t.Errorf("another snapshot begins while the first one is read: %v", err)
		}
		time.Sleep(20 * time.Second)
		if n := s.count(); n != 0 {
			t.Errorf("%d snapshots are kept", n)
		}
	})
}

// A read that fails is not repeated for the same snapshot, and goes on when the request that began it ends.
func TestSnapshotRemembers(t *testing.T) {
	s := snapshots{refresh: time.Hour, now: time.Now, byUser: map[user]*snapshot{}}
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
	if !k.isValid(k.key) || k.isValid("") || k.isValid("x") {
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
