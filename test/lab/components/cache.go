package components

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// key returns the name of the family's folder in the cache. It covers all files of the
// family and its flags.
func (f family) key(root string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.GOOS, runtime.GOARCH, f.tags, f.ldflags)
	for _, all := range families { // f may have only some of the programs
		if all.name == f.name {
			fmt.Fprintln(h, all.programs)
		}
	}
	files := 0
	err := filepath.WalkDir(f.dir(root), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		fmt.Fprintln(h, filepath.Base(file), len(content))
		h.Write(content)
		files++
		return err
	})
	if err != nil || files == 0 {
		return "", fmt.Errorf("read the pinned versions of %s (use a complete checkout): %w", f.name, errors.Join(err, os.ErrNotExist))
	}
	return f.name + "-" + hex.EncodeToString(h.Sum(nil))[:12], nil
}

// lockCache waits until no other process builds components. The kernel releases the lock
// when the process ends.
func lockCache(ctx context.Context, cache string, out io.Writer) (*os.File, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	retry := time.NewTicker(time.Second)
	defer retry.Stop()
	for isFirst := true; ; isFirst = false {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
		}
		if isFirst {
			fmt.Fprintln(out, "lab: waiting for another process that builds components")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), lock.Close())
		case <-retry.C:
		}
	}
}

// describeBuildCache returns a sentence about the size of Go's build cache.
func describeBuildCache(ctx context.Context) string {
	output, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	dir := strings.TrimSpace(string(output))
	if err == nil {
		var bytes int64
		bytes, err = sizeOf(dir)
		if err == nil {
			return fmt.Sprintf("Go's build cache %s now has %.1f GB, `go clean -cache` empties it", dir, float64(bytes)/1e9)
		}
	}
	return fmt.Sprintf("the size of Go's build cache is unknown: %v", err)
}

// sizeOf returns the size of all files below dir. Files that another process removes
// meanwhile do not count.
func sizeOf(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return bytes, err
}
