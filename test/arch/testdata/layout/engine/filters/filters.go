// This comment does not begin as package comments do.
package filters
