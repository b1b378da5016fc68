package components

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Bundle builds all components that are not cached and packs them into a tar.gz file. A
// checkout with the same pinned versions builds nothing if the file is unpacked in its
// cache.
func Bundle(ctx context.Context, root, file string, out io.Writer) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	// Only the cache counts: a bundle contains the lab's own builds.
	if _, err := build(ctx, root, cache, releases{}, out, All()...); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	partial := file + ".partial"
	if err := pack(root, cache, partial); err != nil {
		return errors.Join(fmt.Errorf("pack %s: %w", file, err), os.Remove(partial))
	}
	if err := os.Rename(partial, file); err != nil {
		return err
	}
	fmt.Fprintf(out, "lab: packed %s; use it on another machine with `mkdir -p ~/.cache/plimsoll/lab && tar -xzf %s -C ~/.cache/plimsoll/lab`\n",
		file, filepath.Base(file))
	return nil
}

func pack(root, cache, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	compressed := gzip.NewWriter(f)
	archive := tar.NewWriter(compressed)
	for _, family := range families {
		key, err := family.key(root)
		if err != nil {
			return errors.Join(err, f.Close())
		}
		for _, p := range family.programs {
			for _, name := range p.names() {
				if err := packFile(archive, cache, filepath.Join(key, name)); err != nil {
					return errors.Join(err, f.Close())
				}
			}
		}
	}
	return errors.Join(archive.Close(), compressed.Close(), f.Close())
}

// packFile adds a program or a link of the cache to the archive.
func packFile(archive *tar.Writer, cache, name string) error {
	path := filepath.Join(cache, name)
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&os.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name, header.Uid, header.Gid, header.Uname, header.Gname = name, 0, 0, "", ""
	if err := archive.WriteHeader(header); err != nil || target != "" {
		return err
	}
	content, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	_, err = io.Copy(archive, content)
	return err
}
