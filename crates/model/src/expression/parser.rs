//! Parser of expressions: from tokens to a syntax tree, by precedence climbing.
//!
//! Functions, methods and macros are resolved by name and number of arguments, so the tree contains only known ones.
//! Errors have a byte position in the text; [`super::Expression::parse`] converts it to a column.
//!
//! # Invariants
//! Recursion is bounded by the maximum nesting depth, so no text overflows the stack.

use serde_json::Value;

use super::lexer::{Token, tokens};
use super::{DEPTH_MAX, ExpressionError, Function, Kind, Macro, Node, Operator, column_of};

pub(super) fn parse(text: &str) -> Result<Node, ExpressionError> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let root = parser.choice()?;
    match parser.peek() {
        Token::End => Ok(root),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
}

/// Operators by precedence, lowest first.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<", Operator::Less),
        ("<=", Operator::LessOrEqual),
        (">", Operator::Greater),
        (">=", Operator::GreaterOrEqual),
        ("in", Operator::In),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
];

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn at(&self) -> usize {
        self.tokens[self.next].0
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        // The last token is [`Token::End`], and stays.
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(found) if *found == sign);
        if found {
            self.take();
        }
        found
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), ExpressionError> {
        if self.takes(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn error(&self, at: usize, message: impl Into<String>) -> ExpressionError {
        ExpressionError { column: column_of(self.text, at), message: message.into() }
    }

    fn unexpected(&self, expected: &str) -> ExpressionError {
        self.error(self.at(), format!("expected {expected} but got {}", self.peek().shown()))
    }

    fn choice(&mut self) -> Result<Node, ExpressionError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error(self.at(), format!("exceeds the maximum nesting depth of {DEPTH_MAX}")));
        }
        let at = self.at();
        let mut node = self.binary(0)?;
        if self.takes("?") {
            let then = self.choice()?;
            self.expect(":")?;
            let other = self.choice()?;
            node = Node { at, kind: Kind::Choice(Box::new(node), Box::new(then), Box::new(other)) };
        }
        self.depth -= 1;
        Ok(node)
    }

    fn binary(&mut self, level: usize) -> Result<Node, ExpressionError> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(operators) {
            let at = self.at();
            self.take();
            let right = self.binary(level + 1)?;
            left = Node { at, kind: Kind::Binary(operator, Box::new(left), Box::new(right)) };
        }
        Ok(left)
    }

    fn operator(&self, operators: &[(&str, Operator)]) -> Option<Operator> {
        let found = match self.peek() {
            Token::Sign(sign) => sign,
            Token::Name(name) => name.as_str(),
            _ => return None,
        };
        operators.iter().find(|(sign, _)| *sign == found).map(|(_, operator)| *operator)
    }

    fn unary(&mut self) -> Result<Node, ExpressionError> {
        let at = self.at();
        let negates = self.takes("-");
        if !negates && !self.takes("!") {
            return self.postfix();
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error(at, format!("exceeds the maximum nesting depth of {DEPTH_MAX}")));
        }
        let inner = Box::new(self.unary()?);
        self.depth -= 1;
        Ok(Node { at, kind: if negates { Kind::Negate(inner) } else { Kind::Not(inner) } })
    }

    fn postfix(&mut self) -> Result<Node, ExpressionError> {
        let mut node = self.primary()?;
        loop {
            let at = self.at();
            if self.takes(".") {
                let Token::Name(name) = self.take() else {
                    return Err(self.error(at, "expected the name of a field after `.`"));
                };
                node = if self.takes("(") { self.method(node, at, &name)? } else { select(node, at, name) };
            } else if self.takes("[") {
                let index = self.choice()?;
                self.expect("]")?;
                node = match index.kind {
                    Kind::Literal(Value::String(field)) => select(node, at, field),
                    kind => {
                        let index = Box::new(Node { at: index.at, kind });
                        Node { at, kind: Kind::Index(Box::new(node), index) }
                    }
                };
            } else {
                return Ok(node);
            }
        }
    }

    fn primary(&mut self) -> Result<Node, ExpressionError> {
        let at = self.at();
        let kind = match self.peek().clone() {
            Token::Int(number) => self.literal(Value::from(number)),
            Token::Double(number) => self.literal(Value::from(number)),
            Token::Text(text) => self.literal(Value::String(text)),
            Token::Name(name) => return self.name(at, name),
            Token::Sign("(") => {
                self.take();
                let inner = self.choice()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => {
                self.take();
                Kind::List(self.nodes_until("]")?)
            }
            Token::Sign("{") => {
                self.take();
                self.map()?
            }
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Node { at, kind })
    }

    fn literal(&mut self, value: Value) -> Kind {
        self.take();
        Kind::Literal(value)
    }

    fn name(&mut self, at: usize, name: String) -> Result<Node, ExpressionError> {
        self.take();
        let kind = match name.as_str() {
            "true" => Kind::Literal(Value::Bool(true)),
            "false" => Kind::Literal(Value::Bool(false)),
            "null" => Kind::Literal(Value::Null),
            "in" => return Err(self.error(at, "expected a value but got `in`")),
            _ if self.takes("(") => self.function(at, &name)?,
            _ => Kind::Path(vec![name]),
        };
        Ok(Node { at, kind })
    }

    fn map(&mut self) -> Result<Kind, ExpressionError> {
        let mut entries = Vec::new();
        while !self.takes("}") {
            let key = self.choice()?;
            self.expect(":")?;
            entries.push((key, self.choice()?));
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Kind::Map(entries))
    }

    fn nodes_until(&mut self, end: &'static str) -> Result<Vec<Node>, ExpressionError> {
        let mut nodes = Vec::new();
        while !self.takes(end) {
            nodes.push(self.choice()?);
            if !self.takes(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(nodes)
    }

    fn function(&mut self, at: usize, name: &str) -> Result<Kind, ExpressionError> {
        let arguments = self.nodes_until(")")?;
        if name == "has" {
            return match <[Node; 1]>::try_from(arguments) {
                Ok([node]) if matches!(&node.kind, Kind::Path(path) if path.len() > 1) => {
                    Ok(Kind::Has(Box::new(node)))
                }
                Ok([node]) if matches!(node.kind, Kind::Field(..)) => Ok(Kind::Has(Box::new(node))),
                _ => {
                    Err(self
                        .error(at, "expected one field as argument of `has`, such as `has(params.region)`"))
                }
            };
        }
        let function = match name {
            "size" => Function::Size,
            "string" => Function::Text,
            "int" => Function::Int,
            "double" => Function::Double,
            _ => {
                let known = "`has`, `size`, `string`, `int`, `double`, `lists.range`";
                return Err(self.error(at, format!("there is no function `{name}`: expected one of {known}")));
            }
        };
        self.count(at, name, &arguments, 1)?;
        Ok(Kind::Call(function, arguments))
    }

    fn method(&mut self, target: Node, at: usize, name: &str) -> Result<Node, ExpressionError> {
        let each = match name {
            "all" => Some(Macro::All),
            "exists" => Some(Macro::Exists),
            "filter" => Some(Macro::Filter),
            "map" => Some(Macro::Map),
            _ => None,
        };
        let mut arguments = self.nodes_until(")")?;
        if let Some(each) = each {
            self.count(at, name, &arguments, 2)?;
            let body = arguments.pop().expect("there are two");
            let variable = match arguments.pop().map(|node| node.kind) {
                Some(Kind::Path(mut path)) if path.len() == 1 => path.pop().expect("there is one"),
                _ => {
                    return Err(self.error(
                        at,
                        format!("expected a variable name as first argument of `{name}`: `{name}(x, …)`"),
                    ));
                }
            };
            let kind = Kind::Each(each, Box::new(target), variable, Box::new(body));
            return Ok(Node { at, kind });
        }
        let is_lists = matches!(&target.kind, Kind::Path(path) if path.len() == 1 && path[0] == "lists");
        if name == "range" && is_lists {
            self.count(at, name, &arguments, 1)?;
            return Ok(Node { at, kind: Kind::Call(Function::Range, arguments) });
        }
        let (function, expected) = match name {
            "size" => (Function::Size, 0),
            "contains" => (Function::Contains, 1),
            "startsWith" => (Function::StartsWith, 1),
            "endsWith" => (Function::EndsWith, 1),
            "lowerAscii" => (Function::Lower, 0),
            "upperAscii" => (Function::Upper, 0),
            "trim" => (Function::Trim, 0),
            "split" => (Function::Split, 1),
            "join" => (Function::Join, 1),
            _ => {
                let known = "`contains`, `startsWith`, `endsWith`, `lowerAscii`, `upperAscii`, `trim`, `split`, `join`, `all`, `exists`, `filter` or `map`";
                let told = format!("there is no function `.{name}`: expected {known}");
                return Err(self.error(at, told));
            }
        };
        self.count(at, name, &arguments, expected)?;
        arguments.insert(0, target);
        Ok(Node { at, kind: Kind::Call(function, arguments) })
    }

    fn count(
        &self,
        at: usize,
        name: &str,
        arguments: &[Node],
        expected: usize,
    ) -> Result<(), ExpressionError> {
        if arguments.len() == expected {
            return Ok(());
        }
        let found = arguments.len();
        Err(self.error(at, format!("expected {expected} arguments of `{name}` but got {found}")))
    }
}

/// Selects a field. The field of a path becomes part of the path, so that [`super::Scope`] resolves the whole path at
/// once.
fn select(node: Node, at: usize, field: String) -> Node {
    match node.kind {
        Kind::Path(mut path) => {
            path.push(field);
            Node { at: node.at, kind: Kind::Path(path) }
        }
        kind => Node { at, kind: Kind::Field(Box::new(Node { at: node.at, kind }), field) },
    }
}
