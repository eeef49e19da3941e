// Package deep stands four levels down.
package deep
