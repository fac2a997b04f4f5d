//! The grammar again, slowly: characters, recursion, a tree of texts.
use crate::json::{Fault, MAX_INTEGER_DIGITS, write_float, write_string};

pub(super) fn canonical(text: &str, max_depth: usize) -> Result<(String, usize), Fault> {
    let mut reader = Reader { text, at: 0, words: 0, max_depth };
    let value = reader.value(0)?;
    reader.white();
    if reader.at < text.len() { reader.bad() } else { Ok((value, reader.words)) }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    words: usize,
    max_depth: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn bad<T>(&self) -> Result<T, Fault> {
        Err(Fault::Bad { at: self.at })
    }

    fn white(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn value(&mut self, depth: usize) -> Result<String, Fault> {
        self.white();
        if let Some(opening @ ('[' | '{')) = self.rest().chars().next() {
            return if depth < self.max_depth {
                self.container(opening, depth)
            } else {
                Err(Fault::TooDeep { at: self.at })
            };
        }
        if self.rest().starts_with('"') {
            return Ok(quoted(&self.string()?));
        }
        for word in ["null", "true", "false", "NaN", "Infinity", "-Infinity"] {
            if self.take(word) {
                let known = word.starts_with(['n', 't', 'f']);
                self.words += usize::from(!known);
                return Ok(if known { word.to_owned() } else { "null".to_owned() });
            }
        }
        self.number()
    }

    fn container(&mut self, opening: char, depth: usize) -> Result<String, Fault> {
        let object = opening == '{';
        let closing = if object { "}" } else { "]" };
        let mut children: Vec<(String, String)> = Vec::new();
        self.at += 1;
        self.white();
        let mut more = !self.take(closing);
        while more {
            let mut key = String::new();
            if object {
                self.white();
                key = quoted(&self.string()?) + ":";
                self.white();
                if !self.take(":") {
                    return self.bad();
                }
            }
            let value = self.value(depth + 1)?;
            match children.iter_mut().find(|child| object && child.0 == key) {
                Some(child) => child.1 = value,
                None => children.push((key, value)),
            }
            self.white();
            more = self.take(",");
            if !more && !self.take(closing) {
                return self.bad();
            }
        }
        let children: Vec<String> = children.into_iter().map(|(key, value)| key + &value).collect();
        Ok(format!("{opening}{}{closing}", children.join(",")))
    }

    fn string(&mut self) -> Result<String, Fault> {
        let mut units: Vec<u16> = Vec::new();
        let mut chars = self.rest().char_indices();
        if chars.next().is_none_or(|(_, char)| char != '"') {
            return self.bad();
        }
        while let Some((at, char)) = chars.next() {
            match char {
                '"' => {
                    self.at += at + 1;
                    return Ok(String::from_utf16_lossy(&units));
                }
                '\\' => match chars.next() {
                    Some((_, 'u')) => {
                        let hex: String = chars.by_ref().take(4).map(|(_, char)| char).collect();
                        if hex.chars().count() < 4 || !hex.chars().all(|char| char.is_ascii_hexdigit()) {
                            return self.bad();
                        }
                        units.push(u16::from_str_radix(&hex, 16).unwrap_or(0));
                    }
                    Some((_, letter)) => match "\"\\/bfnrt".find(letter) {
                        Some(nth) => units.push(u16::from(b"\"\\/\x08\x0c\n\r\t"[nth])),
                        None => return self.bad(),
                    },
                    None => return self.bad(),
                },
                '\0'..='\x1f' => return self.bad(),
                _ => units.extend(char.encode_utf16(&mut [0; 2]).iter()),
            }
        }
        self.bad()
    }

    fn number(&mut self) -> Result<String, Fault> {
        let start = self.at;
        let minus = self.take("-");
        let whole = self.digits();
        let leading = if whole.starts_with('0') { 1 } else { whole.len() };
        if whole.is_empty() {
            self.at = start;
            return self.bad();
        }
        self.at -= whole.len() - leading;
        let integer = self.at;
        for firsts in [&['.'][..], &['e', 'E'][..]] {
            let before = self.at;
            if leading == whole.len() && self.rest().starts_with(firsts) {
                self.at += 1;
                let _ = firsts != ['.'] && (self.take("+") || self.take("-"));
                if self.digits().is_empty() {
                    self.at = before;
                }
            }
        }
        let token = &self.text[start..self.at];
        if self.at > integer {
            let mut out = String::new();
            write_float(token.parse().unwrap_or(f64::NAN), &mut out);
            return Ok(out);
        }
        if leading > MAX_INTEGER_DIGITS {
            self.at = start;
            return self.bad();
        }
        Ok(if minus && leading == 1 && whole.starts_with('0') { "0".to_owned() } else { token.to_owned() })
    }

    fn digits(&mut self) -> String {
        let digits: String = self.rest().chars().take_while(char::is_ascii_digit).collect();
        self.at += digits.len();
        digits
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_string(text, &mut out);
    out
}
