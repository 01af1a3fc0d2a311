//! Describes a timing in English and Chinese.
//!
//! ```text
//! At 02:00 every day, in Asia/Shanghai; except on days of calendar belfry.cn-holidays.
//! 每天 02:00（Asia/Shanghai）；日历 belfry.cn-holidays 中的日子除外。
//! ```
//!
//! - `shape`: shared by both languages: sets of values, times of day, the two day fields.
//! - `english`, `chinese`: the sentences.
//!
//! # Invariants
//! - The text is precise enough to predict the timing; an invalid part is quoted as written.
//! - The text covers every part of a timing: two timings with different meanings have different texts.

use std::fmt;
use std::str::FromStr;

use model::timing::{Timing, Window};
use serde::{Deserialize, Serialize};

mod chinese;
mod english;
mod shape;

/// Language of a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Language {
    /// English.
    #[default]
    #[serde(rename = "en")]
    English,
    /// Simplified Chinese.
    #[serde(rename = "zh-CN")]
    Chinese,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::English => "en",
            Self::Chinese => "zh-CN",
        })
    }
}

/// Error: a text is not the code of a supported language.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown language `{text}`: expected `en` or `zh-CN`")]
pub struct ParseLanguageError {
    text: String,
}

impl FromStr for Language {
    type Err = ParseLanguageError;

    fn from_str(text: &str) -> Result<Self, ParseLanguageError> {
        match text {
            "en" => Ok(Self::English),
            "zh-CN" => Ok(Self::Chinese),
            _ => {
                Err(ParseLanguageError { text: text.chars().filter(|c| !c.is_control()).take(64).collect() })
            }
        }
    }
}

/// Describes a timing as a sentence.
///
/// Every timing has a description, including invalid ones: an invalid part is quoted.
pub fn describe(timing: &Timing, language: Language) -> String {
    match language {
        Language::English => english::describe(timing),
        Language::Chinese => chinese::describe(timing),
    }
}

/// Whether a window ends on the day after its start. The times may have seconds or not.
fn passes_midnight(window: &Window) -> bool {
    let with_seconds = |time: &str| if time.len() == 5 { format!("{time}:00") } else { time.to_owned() };
    with_seconds(&window.until) <= with_seconds(&window.from)
}

/// Returns a user's text without control characters, cut to 256 characters.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(256).collect()
}

#[cfg(test)]
mod tests;
