// Package types has the kinds of values of policy.wit that Go lacks.
package types

// Unit is no value.
type Unit struct{}

// Tuple2 is a pair.
type Tuple2[A, B any] struct {
	F0 A
	F1 B
}

const (
	OptionNone uint8 = 0
	OptionSome uint8 = 1
)

// Option is a value that may be absent.
type Option[T any] struct {
	tag   uint8
	value T
}

func Some[T any](value T) Option[T] { return Option[T]{OptionSome, value} }
func None[T any]() Option[T]        { return Option[T]{} }

func (option Option[T]) Tag() uint8   { return option.tag }
func (option Option[T]) IsSome() bool { return option.tag == OptionSome }
func (option Option[T]) IsNone() bool { return option.tag == OptionNone }

// Some is the value. It panics where there is none.
func (option Option[T]) Some() T {
	if option.tag != OptionSome {
		panic("the option has no value")
	}
	return option.value
}

const (
	ResultOk  uint8 = 0
	ResultErr uint8 = 1
)

// Result is an answer, or why there is none.
type Result[T, E any] struct {
	tag uint8
	ok  T
	err E
}

func Ok[T, E any](value T) Result[T, E]   { return Result[T, E]{tag: ResultOk, ok: value} }
func Err[T, E any](reason E) Result[T, E] { return Result[T, E]{tag: ResultErr, err: reason} }

func (result Result[T, E]) Tag() uint8 { return result.tag }

// Ok is the answer. It panics where there is none.
func (result Result[T, E]) Ok() T {
	if result.tag != ResultOk {
		panic("the result is an error")
	}
	return result.ok
}

// Err is the reason. It panics where there is an answer.
func (result Result[T, E]) Err() E {
	if result.tag != ResultErr {
		panic("the result is no error")
	}
	return result.err
}
