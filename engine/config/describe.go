package config

//go:generate go test . -run TestPluginDocs -update

// Family is a kind of plugin with everything that a configuration may name of it.
type Family struct {
	Name    string
	Plugins []Plugin // by type
}

// Plugin is the user documentation of one plugin type.
type Plugin struct {
	Type       string
	Text       string // what it does
	Parameters []Parameter
}

// Parameter is one parameter of a plugin.
type Parameter struct {
	Name    string // a path, such as matchExpressions[].key
	Kind    string
	Default string // "" = empty, none
	Text    string
	Effect  string // "" = it works; "warning" = it is read and has no effect; "none" = only its default is accepted
}

// Describe is the documentation of every plugin that a configuration may name. It is generated from the doc comments of
// the plugins' types; the caller must not change it.
func Describe() []Family { return pluginDocs }
