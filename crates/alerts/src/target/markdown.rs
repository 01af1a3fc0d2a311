//! Markdown of services that document no way to escape it (DingTalk, WeCom).
//!
//! Text is made harmless by zero-width spaces inside of everything that would be markup ([`clean::inert`]), so that it
//! looks the same. This also holds in code blocks, because older clients show them as running text.

use super::content::Link;
use crate::clean;

/// Returns text that has no link, image, tag, mention or code.
pub(super) fn harmless(text: &str) -> String {
    clean::inert(&clean::without_backticks(text))
}

/// Returns the lines of a code block. They cannot close the block, and are harmless outside of it.
pub(super) fn block(text: &str) -> String {
    format!("```\n{}\n```", clean::inert(&clean::unfenced(text)))
}

/// Returns links side by side; `None` without links.
pub(super) fn links(links: &[Link]) -> Option<String> {
    let shown: Vec<_> = links.iter().map(|link| format!("[{}]({})", link.text, link.url)).collect();
    (!shown.is_empty()).then(|| shown.join(" · "))
}
