package chunk

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Range{
		"bytes 0-262144 of 524288":      {0, 262144, 524288},
		"bytes 262144-524288 of 524288": {262144, 524288, 524288},
		"bytes 0-256k":                  {0, 262144, 0},
		"bytes 256k-512k":               {262144, 524288, 0},
		"bytes 0-256k of 1024k":         {0, 262144, 1048576},
		"bytes 7-7":                     {7, 7, 0},
	} {
		got, err := Parse(in)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v, want %v", in, got, err, want)
			continue
		}
		if again, err := Parse(got.Format()); again != got || err != nil {
			t.Errorf("Parse(%q) = %v, %v, want %v", got.Format(), again, err, got)
		}
	}
	for _, in := range []string{
		"", "bytes", "bytes ", "bytes 5", "bytes 1-", "bytes -1", "0-5", "bytes 5-4", "bytes 0-9 of 8", "bytes 0-9 of ", "bytes 0-9 of",
		"bytes 0-9M", "bytes 0-+9", "bytes 0-9 of x", "bytes 0-9 ", "bytes  0-9", "bytes 0-k", "bytes 0-9999999999999999", "Bytes 0-9",
	} {
		if r, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", in, r)
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", Size-1)
	for name, c := range map[string]struct {
		in   string
		ends []int64
	}{
		"nothing":                     {"", nil},
		"one byte":                    {"x", []int64{1}},
		"just one block":              {text + "x", []int64{Size}},
		"one byte more":               {text + "xy", []int64{Size, Size + 1}},
		"two bytes across the border": {text + "ö", []int64{Size - 1, Size + 1}},
		"four bytes across":           {text[2:] + "😀", []int64{Size - 3, Size + 1}},
		"no text":                     {text + "\x80\x80\x80\x80\x80", []int64{Size - 2, Size + 4}},
		"no text at all":              {strings.Repeat("\x80", Size+1), []int64{Size, Size + 1}},
	} {
		var ends []int64
		start := int64(0)
		for _, b := range Split([]byte(c.in)) {
			if b.Start != start || string(b.Data) != c.in[b.Start:b.End] {
				t.Errorf("%s: block %d-%d does not hold what it says", name, b.Start, b.End)
			}
			start = b.End
			ends = append(ends, b.End)
		}
		if !reflect.DeepEqual(ends, c.ends) {
			t.Errorf("%s: Split ends blocks at %v, want %v", name, ends, c.ends)
		}
	}
}

func TestBlocksComeInAnyOrder(t *testing.T) {
	t.Parallel()
	whole := bytes.Repeat([]byte("Grüße, 世界 😀\n"), 60_000)
	blocks := Split(whole)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var a Assembler
		random.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		for i, b := range append(blocks, blocks[0], blocks[2]) {
			if i < len(blocks) && a.Complete() {
				t.Error("complete too early")
			}
			if err := a.Add(Range{b.Start, b.End, int64(len(whole))}, b.Data); err != nil {
				t.Fatal(err)
			}
		}
		if !a.Complete() || !bytes.Equal(a.Bytes(), whole) || a.Missing() != nil {
			t.Fatalf("complete %t, %d bytes, missing %v, want the whole", a.Complete(), len(a.Bytes()), a.Missing())
		}
	}
}

func TestAssemblerRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r    Range
		data string
	}{
		"other bytes":          {Range{2, 4, 0}, "cx"},
		"other bytes, further": {Range{2, 12, 0}, "cdexxxxxxx"},
		"more bytes than said": {Range{20, 22, 0}, "xxx"},
		"another total":        {Range{20, 21, 99}, "x"},
		"beyond the total":     {Range{50, 51, 0}, "x"},
		"total beyond Max":     {Range{20, 21, 101}, "x"},
		"beyond Max":           {Range{100, 101, 0}, "x"},
		"before the beginning": {Range{-1, 0, 0}, "x"},
	} {
		a := Assembler{Max: 100}
		for _, b := range []struct {
			r    Range
			data string
		}{{Range{0, 5, 50}, "abcde"}, {Range{8, 10, 0}, "ij"}} {
			if err := a.Add(b.r, []byte(b.data)); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Add(c.r, []byte(c.data)); err == nil {
			t.Errorf("%s: Add(%v, %q) = nil, want an error", name, c.r, c.data)
		}
		want := []Range{{5, 8, 50}, {10, 50, 50}}
		if got := a.Missing(); string(a.Bytes()) != "abcde" || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: after it %q, missing %v, want abcde, missing %v", name, a.Bytes(), got, want)
		}
	}
	var a Assembler
	for i := range int64(maxParts) {
		if err := a.Add(Range{2 * i, 2*i + 1, 0}, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Add(Range{2 * maxParts, 2*maxParts + 1, 0}, []byte("x")); err == nil {
		t.Error("the assembler takes ever more parts")
	}
	if err := a.Add(Range{1, 2, 0}, []byte("x")); err != nil || len(a.Bytes()) != 3 {
		t.Errorf("Add(1-2) = %v, %d bytes together, want 3", err, len(a.Bytes()))
	}
}

func FuzzParse(f *testing.F) {
	f.Add("bytes 0-262144 of 524288")
	f.Add("bytes 0-256k")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(r.Format()); err != nil || again != r {
			t.Fatalf("Parse(%q) = %v, but Parse(%q) = %v, %v", s, r, r.Format(), again, err)
		}
	})
}

// Whatever pieces of a whole come, in whatever order, the assembler has them all and nothing else.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte("0123456789"), []byte{0, 3, 2, 5, 9, 1})
	f.Fuzz(func(t *testing.T, whole, cuts []byte) {
		var a Assembler
		have := make([]bool, len(whole))
		for i := 0; i+1 < len(cuts); i += 2 {
			start := min(int(cuts[i]), len(whole))
			end := min(start+int(cuts[i+1]), len(whole))
			if err := a.Add(Range{int64(start), int64(end), 0}, whole[start:end]); err != nil {
				t.Fatal(err)
			}
			for j := start; j < end; j++ {
				have[j] = true
			}
		}
		n := 0
		for n < len(have) && have[n] {
			n++
		}
		if got := a.Bytes(); !bytes.Equal(got, whole[:n]) {
			t.Fatalf("Bytes() = %q, want %q", got, whole[:n])
		}
	})
}

func TestBlocksCutNoCharacter(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"öööö", "世世世", "😀😀😀", "a😀ö世"} {
		for lead := range 9 {
			p := []byte(strings.Repeat("x", Size-lead) + end)
			var joined []byte
			for _, b := range Split(p) {
				if len(b.Data) > Size || !utf8.Valid(b.Data) {
					t.Errorf("%d bytes and %s: block %d-%d is too long or cuts a character", Size-lead, end, b.Start, b.End)
				}
				joined = append(joined, b.Data...)
			}
			if !bytes.Equal(joined, p) {
				t.Errorf("%d bytes and %s: the blocks are not the whole", Size-lead, end)
			}
		}
	}
}
