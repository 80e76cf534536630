// Package runtime gives memory to kproxide, and to the bindings beside it.
package runtime

import (
	"runtime"
	"unsafe"
)

// What kproxide wrote the arguments of a call to.
var arguments runtime.Pinner

// Allocate returns memory that stays until the pinner is unpinned, for each alignment up to 8.
func Allocate(pinner *runtime.Pinner, size, _ uintptr) unsafe.Pointer {
	words := make([]uint64, size/8+1)
	pinner.Pin(&words[0])
	return unsafe.Pointer(&words[0])
}

// Unpin is called when the arguments were read: from there on Go's own references keep them.
func Unpin() {
	arguments.Unpin()
}

//go:wasmexport cabi_realloc
func reallocate(old unsafe.Pointer, oldSize, align, newSize uintptr) unsafe.Pointer {
	memory := Allocate(&arguments, newSize, align)
	copy(unsafe.Slice((*byte)(memory), newSize), unsafe.Slice((*byte)(old), oldSize))
	return memory
}
