//! What people read is in plain words: the terms of the glossary, and sentences that need no second reading.

use std::fs;
use std::path::{Path, PathBuf};

use harness::language::{Finding, long_sentences, replaced_words};
use harness::repository;
use model::api::Code;

/// Pages that a program writes, or that quote others.
const NOT_PROSE: [&str; 2] = ["test-results.md", "benchmarks.md"];

/// All English pages of the book, and the README.
fn pages() -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                collect(&path, found);
            } else if name.ends_with(".md") && !name.contains("zh-CN") && !NOT_PROSE.contains(&&*name) {
                found.push(path);
            }
        }
    }
    let mut found = vec![repository().join("README.md")];
    collect(&repository().join("docs/src"), &mut found);
    found.sort();
    found
}

fn named(name: impl std::fmt::Display, findings: Vec<Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| format!("{name}:{finding}")).collect()
}

#[track_caller]
fn assert_plain(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} texts are not in plain words:\n{}", wrong.len(), wrong.join("\n"));
}

fn check_pages(check: impl Fn(&str) -> Vec<Finding>) -> Vec<String> {
    let shown = |page: &Path| page.strip_prefix(repository()).unwrap().display().to_string();
    pages().iter().flat_map(|page| named(shown(page), check(&fs::read_to_string(page).unwrap()))).collect()
}

#[test]
fn the_book_uses_the_words_of_its_glossary() {
    assert_plain(check_pages(replaced_words));
}

#[test]
fn no_sentence_of_the_book_is_too_long() {
    assert_plain(check_pages(long_sentences));
}

#[test]
fn help_texts_use_the_words_of_the_glossary() {
    let path = "crates/belfry/src/snapshots/belfry__tests__the_help_of_every_command.snap";
    assert_plain(named(path, replaced_words(&fs::read_to_string(repository().join(path)).unwrap())));
}

#[test]
fn error_codes_use_the_words_of_the_glossary() {
    let texts = |code: &Code| format!("{}\n{}", code.title(), code.hint());
    assert_plain(
        Code::ALL.iter().flat_map(|code| named(code.as_str(), replaced_words(&texts(code)))).collect(),
    );
}

/// The descriptions of the API, each with the path to it.
fn descriptions(value: &serde_json::Value, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    serde_json::Value::String(text) if key == "description" || key == "summary" => {
                        found.push((path.to_owned(), text.clone()));
                    }
                    value => descriptions(value, &format!("{path}/{key}"), found),
                }
            }
        }
        serde_json::Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| descriptions(item, &format!("{path}/{i}"), found));
        }
        _ => {}
    }
}

#[test]
fn the_api_uses_the_words_of_the_glossary() {
    let document = fs::read_to_string(repository().join("docs/openapi.json")).unwrap();
    let mut found = Vec::new();
    descriptions(&serde_json::from_str(&document).unwrap(), "openapi.json#", &mut found);
    assert!(found.len() > 1_000);
    assert_plain(found.into_iter().flat_map(|(path, text)| named(path, replaced_words(&text))).collect());
}
