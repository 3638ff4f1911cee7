package setclock

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supported reports whether processes of this system can follow a Clock.
const Supported = true

// The kernel maps a page of code into each process that tells the time, the vDSO. Go's
// time.Now calls its function clock_gettime, through a pointer that it has found at the
// start. So that function is replaced, in the copy of the page that becomes this
// process's own when it is written. The new one asks the kernel, and adds what the file
// says.
//
// It is the only way to set the clocks of a program as it is: a library that is loaded
// before it is not asked, a namespace of time has no wall clock, and a program that is
// built with another package time is another program.

// Follow has the clocks of this process follow the Clock of a file. It is called once,
// and before the process looks at the time.
func Follow(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	table, err := unix.Mmap(int(f.Fd()), 0, cellsSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("setclock: %s: %w", path, err)
	}
	if err := replace(code(uintptr(unsafe.Pointer(&table[0])))); err != nil {
		return fmt.Errorf("setclock: %w", err)
	}
	return nil
}

// Real returns the system's time, also in a process that follows a Clock.
func Real() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &ts); err != nil { // the kernel is asked
		panic(err)
	}
	return time.Unix(ts.Unix())
}

// code is clock_gettime(clock, *timespec) that adds the seconds of the clock's cell.
func code(table uintptr) []byte {
	c := []byte{
		0xb8, unix.SYS_CLOCK_GETTIME, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x89, 0xff, // mov edi, edi
		0x83, 0xff, cells - 1, // cmp edi, the last cell
		0x77, 0x11, // ja to ret
		0x48, 0xb9, // mov rcx, the table
	}
	c = binary.LittleEndian.AppendUint64(c, uint64(table))
	return append(c,
		0x48, 0x8b, 0x0c, 0xf9, // mov rcx, [rcx+rdi*8]
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3, // ret
	)
}

// replace writes the code to where the vDSO has clock_getres, which nobody calls, and
// then a jump to it to where it has clock_gettime. A thread that is in the old function
// has passed its first bytes, and ends it.
func replace(code []byte) error {
	base, err := vdso()
	if err != nil {
		return err
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0) // writes what is read-only, too
	if err != nil {
		return err
	}
	defer mem.Close()
	file, err := elf.NewFile(io.NewSectionReader(mem, base, 1<<20))
	if err != nil {
		return err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	at := map[string]elf.Symbol{}
	for _, s := range symbols {
		at[s.Name] = s
	}
	gettime, room := at["__vdso_clock_gettime"], at["__vdso_clock_getres"]
	if gettime.Value == 0 || room.Size < uint64(len(code)) {
		return errors.New("the kernel's vDSO is another one")
	}
	if _, err := mem.WriteAt(code, base+int64(room.Value)); err != nil {
		return err
	}
	const jump = 5 // jmp rel32, from the next instruction
	distance := int32(int64(room.Value) - int64(gettime.Value) - jump)
	_, err = mem.WriteAt(binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(distance)), base+int64(gettime.Value))
	return err
}

// vdso returns where this process has its vDSO.
func vdso() (int64, error) {
	const header = 33 // AT_SYSINFO_EHDR
	vector, err := unix.Auxv()
	for _, one := range vector {
		if one[0] == header {
			return int64(one[1]), nil
		}
	}
	return 0, cmp.Or(err, errors.New("this process has no vDSO"))
}
