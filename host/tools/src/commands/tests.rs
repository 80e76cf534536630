//! What holds for all that the program says.

mod walker;
