//go:build linux || darwin || freebsd

package embedded

import "syscall"

// freeBytes returns how many bytes are free on the disk that a directory is on.
func freeBytes(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
