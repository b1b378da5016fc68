package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// openRegularFile opens a file for reading, through symbolic links. It refuses
// directories, devices, sockets and pipes, because reading them may block or never end.
func openRegularFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for a writer
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s must be a regular file, but is a %s", path, describeMode(info.Mode()))
	}
	if err != nil {
		_ = f.Close() // the file was not written
		return nil, err
	}
	return f, nil
}

func describeMode(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode&os.ModeNamedPipe != 0:
		return "pipe"
	case mode&os.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// readRegularFile reads a file of at most limit bytes.
func readRegularFile(path string, limit int64) (string, error) {
	f, err := openRegularFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		return "", fmt.Errorf("%s must not be larger than %d bytes", path, limit)
	}
	return string(text), err
}

// checkRegularFile reports an error if a library could not read the file. A missing file
// is an error of the library.
func checkRegularFile(path string) error {
	f, err := openRegularFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
