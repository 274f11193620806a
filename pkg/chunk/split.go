package chunk

import "unicode/utf8"

// A Block is a part of some output. Data shares memory with what was split.
type Block struct {
	Start, End int64
	Data       []byte
}

// Cut is how many bytes of p its first block holds: at most Size, and a few less where the block would otherwise end
// inside a character.
func Cut(p []byte) int {
	if len(p) <= Size {
		return len(p)
	}
	for n := Size; n > Size-utf8.UTFMax; n-- {
		if utf8.RuneStart(p[n]) {
			return n
		}
	}
	return Size // no text, so it does not matter where
}

// Split cuts p into blocks, in order; none when p is empty.
func Split(p []byte) []Block {
	blocks := make([]Block, 0, len(p)/Size+1)
	for start := int64(0); len(p) > 0; {
		n := Cut(p)
		end := start + int64(n)
		blocks = append(blocks, Block{start, end, p[:n:n]})
		p, start = p[n:], end
	}
	return blocks
}
