//! Markdown pages: commands that are tested as written, and parts that are generated from code.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the shell code blocks that follow a `<!-- tested -->`, in order.
pub fn tested_blocks(page: &str) -> Vec<String> {
    page.split("<!-- tested -->\n")
        .skip(1)
        .map(|rest| {
            let block = rest.strip_prefix("```sh\n").expect("a ```sh block follows `<!-- tested -->`");
            block[..block.find("\n```").expect("the block ends")].to_owned()
        })
        .collect()
}

/// Returns every Markdown file below `dir`, sorted.
pub fn markdown_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(markdown_files(&path));
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Asserts that the part of `page` between `<!-- generated: NAME -->` and `<!-- end -->` equals `text`.
///
/// If the environment variable `BELFRY_UPDATE` is set, the page is written instead.
///
/// # Panics
/// If they differ.
pub fn assert_generated(page: &Path, name: &str, text: &str) {
    let found = fs::read_to_string(page).expect("cannot read the page");
    let expected = with_part(&found, name, text);
    if std::env::var_os("BELFRY_UPDATE").is_some() {
        fs::write(page, expected).expect("cannot write the page");
    } else {
        assert!(
            found == expected,
            "{} is outdated: run `make fix` to regenerate its part `{name}` as:\n{text}",
            page.display()
        );
    }
}

/// Asserts that a whole file equals `text`, or writes it, as [`assert_generated`] does for a part.
///
/// # Panics
/// If they differ.
pub fn assert_file(file: &Path, text: &str) {
    if std::env::var_os("BELFRY_UPDATE").is_some() {
        fs::write(file, text).expect("cannot write the file");
    } else {
        let found = fs::read_to_string(file).unwrap_or_default();
        assert!(found == text, "{} is outdated: run `make fix` to regenerate it", file.display());
    }
}

fn with_part(page: &str, name: &str, text: &str) -> String {
    let mark = format!("<!-- generated: {name} -->\n");
    let begin = page.find(&mark).unwrap_or_else(|| panic!("the page lacks `{}`", mark.trim())) + mark.len();
    let end = begin + page[begin..].find("<!-- end -->").expect("a generated part ends with `<!-- end -->`");
    format!("{}\n{}\n\n{}", &page[..begin], text.trim(), &page[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_are_tested() {
        let page = "```sh\nno\n```\n<!-- tested -->\n```sh\nyes\nand this\n```\ntext\n```sh\nno\n```\n";
        assert_eq!(tested_blocks(page), ["yes\nand this"]);
    }

    #[test]
    fn a_generated_part_is_replaced_and_the_rest_stays() {
        let page = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n";
        assert_eq!(with_part(page, "x", "new\n"), "a\n<!-- generated: x -->\n\nnew\n\n<!-- end -->\nb\n");
        assert_eq!(with_part(&with_part(page, "x", "new"), "x", "new"), with_part(page, "x", "new"));
    }
}
