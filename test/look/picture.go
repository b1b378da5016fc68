package main

import (
	"image"
	"image/draw"
	"image/png"
	"os"
)

// pictureHeight is the height in pixels of a picture for documents: the upper part of a
// dashboard.
const pictureHeight = 1280

// crop copies the upper part of a picture.
func crop(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	full, err := png.Decode(in)
	if err != nil {
		return err
	}
	part := image.NewPaletted(image.Rect(0, 0, full.Bounds().Dx(), min(full.Bounds().Dy(), pictureHeight)), paletteOf(full))
	draw.Draw(part, part.Bounds(), full, full.Bounds().Min, draw.Src)
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(out, part); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
