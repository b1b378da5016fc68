package chromium

import (
	"image"
	"image/draw"
	"image/png"
	"os"
)

// Crop copies the upper part of a picture, of at most this height in pixels, with 256 colors.
func Crop(from, to string, height int) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	full, err := png.Decode(in)
	if err != nil {
		return err
	}
	part := image.NewPaletted(image.Rect(0, 0, full.Bounds().Dx(), min(full.Bounds().Dy(), height)), paletteOf(full))
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
