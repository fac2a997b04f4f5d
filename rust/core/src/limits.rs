//! What one stream may cost.

/// Upper bounds for one stream; see the Python class `deltafold.Limits` for the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one event: `data` values with their LFs, event, current id, the unfinished known field's value.
    pub max_event_bytes: usize,
    /// Bytes of everything a stream keeps: joined text, names and JSON text of the other members.
    pub max_retained_bytes: usize,
    /// Choices of one stream.
    pub max_choices: usize,
    /// Tool calls of one choice.
    pub max_tool_calls: usize,
    /// Nesting of one chunk; the outermost object is 1.
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_event_bytes: 16 << 20,
            max_retained_bytes: 64 << 20,
            max_choices: 128,
            max_tool_calls: 1024,
            max_depth: 128,
        }
    }
}
