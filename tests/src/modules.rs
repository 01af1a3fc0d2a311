//! The graph of a crate's modules: which module names an item of which other module.
//!
//! [`Modules::read`] parses every file of a crate, follows `mod`, and skips tests. A name counts for the module that
//! defines it, not for the one that it is imported from. `crate::Leader` names the module that defines `Leader`, even
//! if `lib.rs` re-exports it.
//!
//! # Cycles
//! Sibling modules are compared including their submodules. `job` and `queue` form a cycle if a module in `job` names
//! a module in `queue`, and vice versa. A module and its submodules may name each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Path of a module within its crate; empty for the crate root.
type Module = Vec<String>;

/// The modules of one crate.
#[derive(Default)]
pub struct Modules {
    files: BTreeMap<Module, Named>,
}

/// Names in one module.
#[derive(Default)]
struct Named {
    /// Paths in imports and in code, as written.
    paths: BTreeSet<Vec<String>>,
    /// The path of each imported name.
    imports: BTreeMap<String, Vec<String>>,
}

impl Modules {
    /// Reads the crate whose `src` folder contains `lib.rs` or `main.rs`.
    ///
    /// # Panics
    /// If a file cannot be read or is not Rust.
    pub fn read(src: &Path) -> Self {
        let root = ["lib.rs", "main.rs"].map(|name| src.join(name)).into_iter().find(|path| path.exists());
        let mut modules = Self::default();
        modules.add_file(Vec::new(), &root.expect("a crate has lib.rs or main.rs"), src);
        modules
    }

    fn add_file(&mut self, module: Module, file: &Path, folder: &Path) {
        let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.add_items(module, &parsed.items, folder);
    }

    /// `folder` contains the files of the submodules.
    fn add_items(&mut self, module: Module, items: &[syn::Item], folder: &Path) {
        let mut named = Named::default();
        for item in items {
            match item {
                syn::Item::Mod(inner) if is_test(&inner.attrs) => {}
                syn::Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let (below, path) =
                        (folder.join(&name), [module.as_slice(), std::slice::from_ref(&name)].concat());
                    match &inner.content {
                        Some((_, items)) => self.add_items(path, items, &below),
                        None => self.add_file(path, &file_of(folder, &name), &below),
                    }
                }
                item => named.visit_item(item),
            }
        }
        self.files.insert(module, named);
    }

    /// Returns the module that `path` refers to when used in `module`; `None` for other crates and local names.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" | "super" => (module.to_vec(), path),
            first => {
                let inner = [module, &[first.to_owned()]].concat();
                let is_known = self.files.contains_key(&inner)
                    || self.files.get(module).is_some_and(|named| named.imports.contains_key(first));
                if !is_known {
                    return None;
                }
                (module.to_vec(), path)
            }
        };
        while let Some(first) = rest.first() {
            match first.as_str() {
                "self" => {}
                "super" => drop(at.pop()),
                name => {
                    let inner = [at.as_slice(), &[name.to_owned()]].concat();
                    if !self.files.contains_key(&inner) {
                        // Follows a re-export. The depth limit ends a cycle of re-exports.
                        let import = self.files.get(&at).and_then(|named| named.imports.get(name));
                        return match import {
                            Some(import) if depth < 8 && import != path => {
                                self.resolve(&at, import, depth + 1)
                            }
                            _ => Some(at),
                        };
                    }
                    at = inner;
                }
            }
            rest = &rest[1..];
        }
        Some(at)
    }

    /// Returns the modules that each module names.
    fn arrows(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let targets = |module: &Module, named: &Named| {
            let found = named.paths.iter().filter_map(|path| self.resolve(module, path, 0));
            found.filter(|target| target != module).collect()
        };
        self.files.iter().map(|(module, named)| (module, targets(module, named))).collect()
    }

    /// Returns the cycles among sibling modules; in their text, the crate root is `crate`.
    pub fn cycles(&self) -> Vec<Cycle> {
        let arrows = self.arrows();
        let folders: BTreeSet<&[String]> =
            self.files.keys().filter(|module| !module.is_empty()).map(|m| &m[..m.len() - 1]).collect();
        folders.into_iter().flat_map(|folder| circles_in(folder, &arrows)).collect()
    }
}

/// Sibling modules that name each other in a cycle.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycle {
    /// The parent module, such as `crate::api`.
    pub within: String,
    /// Their names, sorted.
    pub modules: Vec<String>,
    /// The dependencies of the cycle, as "a::x names b::y".
    pub arrows: BTreeSet<String>,
}

fn circles_in(folder: &[String], arrows: &BTreeMap<&Module, BTreeSet<Module>>) -> Vec<Cycle> {
    let mut between: BTreeMap<&str, BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
    for (from, targets) in arrows {
        for to in targets {
            let (Some(from_rest), Some(to_rest)) = (from.strip_prefix(folder), to.strip_prefix(folder))
            else {
                continue;
            };
            let (Some(a), Some(b)) = (from_rest.first(), to_rest.first()) else { continue };
            if a != b {
                let arrow = format!("{} names {}", from_rest.join("::"), to_rest.join("::"));
                between.entry(a).or_default().entry(b).or_default().insert(arrow);
            }
        }
    }
    let reached = |start: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(module) = next.pop() {
            for &target in between.get(module).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(target) {
                    next.push(target);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> = between.keys().map(|&m| (m, reached(m))).collect();
    let mut found: BTreeMap<Vec<String>, BTreeSet<String>> = BTreeMap::new();
    for (&module, targets) in &reach {
        let both = |other: &&str| reach.get(other).is_some_and(|back| back.contains(module));
        let circle: BTreeSet<&str> = targets.iter().copied().filter(|other| both(other)).collect();
        if circle.contains(module) {
            let inside = between[module].iter().filter(|(to, _)| circle.contains(*to));
            let arrows = inside.flat_map(|(_, arrows)| arrows.iter().cloned());
            found.entry(circle.iter().map(|&m| m.to_owned()).collect()).or_default().extend(arrows);
        }
    }
    let within = [&["crate".to_owned()], folder].concat().join("::");
    found.into_iter().map(|(modules, arrows)| Cycle { within: within.clone(), modules, arrows }).collect()
}

/// Returns `name.rs` or `name/mod.rs`.
fn file_of(folder: &Path, name: &str) -> PathBuf {
    let flat = folder.join(format!("{name}.rs"));
    if flat.exists() { flat } else { folder.join(name).join("mod.rs") }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute.meta.require_list().ok().filter(|list| list.path.is_ident("cfg"));
        attribute.path().is_ident("test") || condition.is_some_and(|list| list.tokens.to_string() == "test")
    })
}

impl Named {
    fn add_use(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_use(&with(&path.ident), &path.tree),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(prefix, tree)),
            syn::UseTree::Name(name) if name.ident == "self" => {
                self.add_import(prefix.last(), prefix.to_vec())
            }
            syn::UseTree::Name(name) => self.add_import(Some(&name.ident.to_string()), with(&name.ident)),
            syn::UseTree::Rename(name) => self.add_import(Some(&name.rename.to_string()), with(&name.ident)),
            syn::UseTree::Glob(_) => drop(self.paths.insert(prefix.to_vec())),
        }
    }

    fn add_import(&mut self, name: Option<&String>, path: Vec<String>) {
        self.paths.insert(path.clone());
        self.imports.extend(name.map(|name| (name.clone(), path)));
    }

    /// The arguments of a macro are not parsed: their paths are read from the tokens.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Ident(ident) => {
                    self.paths.insert(std::mem::replace(&mut path, vec![ident.to_string()]));
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                _ => colons = 0,
            }
        }
        self.paths.insert(path);
    }
}

impl Visit<'_> for Named {
    fn visit_item(&mut self, item: &syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        self.add_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &syn::Macro) {
        self.add_tokens(call.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cycles of a crate with these files.
    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let told = |circle: Cycle| format!("{}: {}", circle.within, circle.modules.join(", "));
        Modules::read(dir.path()).cycles().into_iter().map(told).collect()
    }

    #[test]
    fn modules_that_name_each_other_form_a_cycle() {
        let found = cycles(&[
            ("lib.rs", "mod job; mod queue; mod time;"),
            ("job.rs", "use crate::queue::Queue; use crate::time::Now; pub struct Job(Queue, Now);"),
            ("queue/mod.rs", "mod order; pub struct Queue;"),
            ("queue/order.rs", "pub fn first(a: &crate::job::Job) {}"),
            ("time.rs", "pub struct Now;"),
        ]);
        assert_eq!(found, ["crate: job, queue"]);
    }

    #[test]
    fn a_reexport_leads_to_the_module_that_defines_the_name() {
        let found = cycles(&[
            ("lib.rs", "mod job; mod queue; pub use job::Job; pub use queue::Queue;"),
            ("job.rs", "use crate::Queue; pub struct Job(Queue);"),
            ("queue.rs", "pub fn first() -> super::Job { todo!() } pub struct Queue;"),
        ]);
        assert_eq!(found, ["crate: job, queue"]);
    }

    #[test]
    fn a_name_inside_a_macro_counts() {
        let found = cycles(&[
            ("main.rs", "mod job; mod queue;"),
            ("job.rs", "pub fn log() { println!(\"{}\", crate::queue::NAME) }"),
            ("queue.rs", "pub const NAME: &str = \"\"; pub fn log() { crate::job::log() }"),
        ]);
        assert_eq!(found, ["crate: job, queue"]);
    }

    #[test]
    fn tests_and_the_parent_module_form_no_cycle() {
        let found = cycles(&[
            ("lib.rs", "mod api; mod node;"),
            ("node.rs", "#[cfg(test)] mod tests { use crate::api::Page; } pub struct Node;"),
            ("api/mod.rs", "mod jobs; use crate::node::Node; pub use jobs::list; pub struct Page(Node);"),
            ("api/jobs.rs", "use super::Page; pub fn list() -> Page { todo!() }"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
