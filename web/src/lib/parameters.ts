/** Parameters of a workflow as form fields: initial texts and parsed values. */

import type { Parameter } from "../api/schema";

/** Texts of the fields by parameter; a switch has `true` or `false`. */
export type FieldTexts = Readonly<Record<string, string>>;

export interface FieldHints {
  /** Allowed values; null if any value is allowed. */
  choices: readonly unknown[] | null;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  example?: string;
}

export function fieldHintsOf({ schema }: Parameter): FieldHints {
  const properties = isMap(schema) ? schema : {};
  const number = (key: string) => (typeof properties[key] === "number" ? properties[key] : undefined);
  const [example] = Array.isArray(properties.examples) ? (properties.examples as unknown[]) : [];
  return {
    choices: Array.isArray(properties.enum) ? (properties.enum as unknown[]) : null,
    minimum: number("minimum") ?? number("exclusiveMinimum"),
    maximum: number("maximum") ?? number("exclusiveMaximum"),
    maxLength: number("maxLength"),
    example: example === undefined ? undefined : toFieldText(example),
  };
}

/** Returns the text of a field for a value. */
export function toFieldText(value: unknown): string {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Returns the initial fields: `values`, else the defaults. */
export function initialFields(
  parameters: Record<string, Parameter>,
  values: Record<string, unknown> = {},
): FieldTexts {
  return Object.fromEntries(
    Object.entries(parameters).map(([name, parameter]) => [
      name,
      toFieldText(values[name] ?? parameter.default),
    ]),
  );
}

export type FieldProblem = "missing" | "noInteger" | "noNumber" | "noArray" | "noObject";

/** Parses the fields; values equal to their defaults are omitted. */
export function parseFields(parameters: Record<string, Parameter>, fields: FieldTexts) {
  const values: Record<string, unknown> = {};
  const problems: Record<string, FieldProblem> = {};
  for (const [name, parameter] of Object.entries(parameters)) {
    const text = fields[name] ?? "";
    const hasDefault = parameter.default !== undefined;
    if (hasDefault && text === toFieldText(parameter.default)) continue;
    if (text === "" && parameter.type !== "string") {
      if (!hasDefault) problems[name] = "missing";
      continue;
    }
    if (text === "" && !hasDefault) {
      problems[name] = "missing";
      continue;
    }
    const [value, problem] = parseValue(parameter, text);
    if (problem) problems[name] = problem;
    else values[name] = value;
  }
  return { values, problems };
}

/** Returns whether a text contains a reference, which is replaced by a value of any type when the schedule fires. */
export function isReference(text: string): boolean {
  return text.includes("${{");
}

/**
 * Parses the fields of a call, whose texts may contain references. A missing parameter is a problem unless it has a
 * reference.
 */
export function parseCallFields(parameters: Record<string, Parameter>, fields: FieldTexts) {
  const references = Object.entries(fields).filter(([, text]) => isReference(text));
  const plain = { ...fields, ...Object.fromEntries(references.map(([name]) => [name, ""])) };
  const { values, problems } = parseFields(parameters, plain);
  for (const [name, text] of references) {
    values[name] = text;
    delete problems[name];
  }
  return { values, problems };
}

function parseValue({ type }: Parameter, text: string): [unknown, FieldProblem | null] {
  switch (type) {
    case "string":
      return [text, null];
    case "boolean":
      return [text === "true", null];
    case "integer":
      return /^\s*-?\d+\s*$/.test(text) ? [Number(text), null] : [null, "noInteger"];
    case "number":
      return text.trim() !== "" && Number.isFinite(Number(text)) ? [Number(text), null] : [null, "noNumber"];
    case "array": {
      const value = parseJson(text);
      return Array.isArray(value) ? [value, null] : [null, "noArray"];
    }
    case "object": {
      const value = parseJson(text);
      return isMap(value) ? [value, null] : [null, "noObject"];
    }
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
