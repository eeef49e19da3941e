// Package picker is named after none of its folder and its module.
package picker
