//! Tests of whole worlds.
