//! node
mod contact;
