// Package schedule decides which endpoints serve a request: it runs the profiles of a plan over the candidates. It
// defines the interfaces of the plugins. It reads time and reports only through Clock and Observer, and never sends a
// message.
package schedule
