package tpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Limits of an inspection of the processes. Tenants choose how many processes and open files there
// are, and how large an environment is: PR_SET_MM_MAP moves its end.
const (
	inspectionTimeout = 2 * time.Second // of all processes together
	maxOpenFiles      = 16384           // of a process; a chip is opened early
	maxProcfsFile     = 2 << 20         // bytes; by default Linux starts no process with a larger environment
	namesPerBatch     = 1024
)

// errTooManyFiles is the error of a process of which only the first maxOpenFiles open files were
// inspected.
var errTooManyFiles = errors.New("too many open files")

// hasExited reports whether err means that a process exited during its inspection.
func hasExited(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// eachName calls visit for the names in a directory, in the order of the directory, until visit
// returns an error. It returns this error, or that of reading the directory.
func eachName(path string, visit func(name string) error) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // only read
	for {
		names, err := dir.Readdirnames(namesPerBatch)
		for _, name := range names {
			if err := visit(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readProcfs returns at most the first maxProcfsFile bytes of a file.
func readProcfs(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return io.ReadAll(io.LimitReader(f, maxProcfsFile))
}

// hasOtherPIDNamespace reports whether a process is known to be in another PID namespace than the
// exporter. Each pod without hostPID has one. The exporter sees it only from the namespace of the
// host.
func (s *Source) hasOtherPIDNamespace(dir string) bool {
	own, ownErr := os.Readlink(filepath.Join(s.options.Procfs, "self/ns/pid"))
	namespace, err := os.Readlink(filepath.Join(dir, "ns/pid"))
	return ownErr == nil && err == nil && own != namespace
}

// openChips returns the indexes of the chips opened by a process. With errTooManyFiles or the error
// of ctx there may be more.
func (s *Source) openChips(ctx context.Context, dir string) (chips []int, err error) {
	n := 0
	err = eachName(filepath.Join(dir, "fd"), func(name string) error {
		if n++; n > maxOpenFiles {
			return errTooManyFiles
		}
		path, err := os.Readlink(filepath.Join(dir, "fd", name))
		if errors.Is(err, fs.ErrPermission) {
			return err
		}
		// With another error the file was closed in the meantime, and path is empty.
		node, inDev := strings.CutPrefix(path, strings.TrimSuffix(s.options.Dev, "/")+"/")
		if i := slices.IndexFunc(s.chips, func(c chip) bool { return c.node == node }); inDev && i >= 0 {
			chips = append(chips, i)
		}
		return ctx.Err()
	})
	return chips, err
}

// environmentVariable returns a variable from the environment of a process, or an empty
// string if the variable is not set. It fails if the environment is too large to know.
func environmentVariable(dir, name string) (string, error) {
	path := filepath.Join(dir, "environ")
	text, err := readProcfs(path)
	if err != nil {
		return "", err
	}
	isCut := len(text) == maxProcfsFile
	if isCut {
		text = text[:bytes.LastIndexByte(text, 0)+1]
	}
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value), nil
		}
	}
	if isCut {
		return "", fmt.Errorf("%s: %s is not in the first %d bytes", path, name, maxProcfsFile)
	}
	return "", nil
}
