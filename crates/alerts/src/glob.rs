//! Patterns of names, in which `*` stands for any characters.

/// Returns whether a name matches a pattern.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        // The first place leaves the most characters for the parts that follow.
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in [
            ("*", "a"),
            ("pay*", "payroll"),
            ("*roll", "payroll"),
            ("p*y*l", "payroll"),
            ("a", "a"),
            ("a*a", "aa"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("pay", "payroll"), ("roll*", "payroll"), ("a*a", "a"), ("p*x*l", "payroll"), ("", "a")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    /// Compares all prefixes, which is slow and obvious.
    fn slow(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|n| slow(rest, &name[n..])),
            Some((first, rest)) => {
                name.split_first().is_some_and(|(found, left)| first == found && slow(rest, left))
            }
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_defined(pattern in "[ab*]{0,6}", name in "[ab]{0,8}") {
            prop_assert_eq!(matches(&pattern, &name), slow(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
