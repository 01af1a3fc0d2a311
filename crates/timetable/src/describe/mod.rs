//! A timing in plain words, in English and Chinese.
//!
//! ```text
//! At 02:00 every day, in Asia/Shanghai; not on days of calendar belfry.cn-holidays.
//! 每天 02:00（Asia/Shanghai）；日历 belfry.cn-holidays 中的日子除外。
//! ```
//!
//! - `shape`: what both languages say alike: sets of values, times of day, the two day fields.
//! - `english`, `chinese`: the sentences.
//!
//! # Always true
//! - The text says what the timing does, never less precisely than a reader needs to predict it; a part
//!   that cannot be read is named as it is written.
//! - Every part of a timing is said: two that differ read differently, unless they mean the same.

use std::fmt;
use std::str::FromStr;

use model::timing::{Timing, Window};
use serde::{Deserialize, Serialize};

mod chinese;
mod english;
mod shape;

/// A language that descriptions are written in.
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

/// Why a text is no language.
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

/// What a timing says, as a sentence.
///
/// Any timing has a description, also one that would be refused: what cannot be read is quoted.
pub fn describe(timing: &Timing, language: Language) -> String {
    match language {
        Language::English => english::describe(timing),
        Language::Chinese => chinese::describe(timing),
    }
}

/// Whether a window ends on the day after it begins. Its times may have seconds or not.
fn passes_midnight(window: &Window) -> bool {
    let with_seconds = |time: &str| if time.len() == 5 { format!("{time}:00") } else { time.to_owned() };
    with_seconds(&window.until) <= with_seconds(&window.from)
}

/// A text of the user's, without what would garble a terminal, and not too long.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(256).collect()
}

#[cfg(test)]
mod tests;
