package broker

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// A Room says how much the file system of a store can take.
type Room struct {
	Free, All int64 // bytes
}

// Reserve is how much has to stay free: room for the ends of what runs, and for the server to bring its blocks in order.
// A twentieth of the file system, between 16 MiB and 1 GiB.
func (r Room) Reserve() int64 { return min(max(r.All/20, 16<<20), 1<<30) }

// Short reports whether less is free than has to stay so: nothing new is to be begun. A server that meets a full disk
// freezes the stream that it was writing.
func (r Room) Short() bool { return r.Free < r.Reserve() }

// RoomIn looks at the file system of a directory. It costs one system call.
func RoomIn(dir string) (Room, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return Room{}, fmt.Errorf("file system of %s: %w", dir, err)
	}
	return Room{Free: int64(st.Bavail) * st.Bsize, All: int64(st.Blocks) * st.Bsize}, nil
}

// Room is that of the store.
func (s *Server) Room() (Room, error) { return RoomIn(s.cfg.Dir) }

// StoreCapacity is how many bytes its streams are to take together: three quarters of what is free or theirs already.
func (s *Server) StoreCapacity() int64 {
	room, err := s.Room()
	if err != nil {
		return 0
	}
	own := int64(0)
	_ = filepath.WalkDir(s.cfg.Dir, func(_ string, e fs.DirEntry, err error) error { // files come and go meanwhile
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			own += info.Size()
		}
		return nil
	})
	return (room.Free + own) / 4 * 3
}
