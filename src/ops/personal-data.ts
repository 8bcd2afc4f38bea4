import type { Config } from '../config.ts'
import type { Role } from './tokens.ts'

/** What somebody may not see, taken out of what they get. */
export interface Mask {
  /** Whether bodies of events, and anything else that can't be masked, must not be shown at all. */
  isOn: boolean
  /** One text without the addresses in it. */
  text(value: string): string
  /** What a filter may not ask for, as its answer would tell an address. */
  problemsOf(filter: unknown): { path: string; message: string }[]
  /** The same object with addresses masked and the content of messages hidden; `dedupe_key` and cursors stay, as they are names. */
  apply<Value>(value: Value): Value
}

const HIDDEN = '(hidden)'
/** All that a local part may hold where sends are asked for, and quoted ones. It begins where no such character stands before it. */
const LOCAL_PART = /(?:"[^"\r\n]{1,64}"|(?<![^\s@<>(),;:"\\[\]\p{Cc}])[^\s@<>(),;:"\\[\]\p{Cc}]+)(?=@[^\s@])/gu
/** In a query string it may be encoded, more than once. */
const ENCODED_ADDRESS = /@|%(?:25)*40|(?:^|&)recipient=[^&]/i
/** Filters that are looked for among addresses, too. */
const asking = ['q', 'recipient', 'ref']
/** Names of things, by which they are asked for again. */
const names = new Set(['dedupe_key', 'next_cursor', 'id', 'event', 'source', 'plan'])
/** What an email or a payload says. */
const contents = new Set(['html_body', 'text_body', 'template_data', 'subject', 'from_name'])

const hide = (text: string) => text.replace(LOCAL_PART, (local) => `${[...local][0]}•••`)

const open: Mask = { isOn: false, text: (value) => value, problemsOf: () => [], apply: (value) => value }
const masking: Mask = { isOn: true, text: hide, problemsOf: problemsOfMasked, apply: maskValue }

/** Whether the query string of a list asks for an address or a part of one. */
export const namesAddress = (query: string): boolean => ENCODED_ADDRESS.test(query)

/** What a person or token of this role may see of addresses and bodies, by the configuration. */
export function maskFor(role: Role, { hidePersonalData }: Pick<Config, 'hidePersonalData'>): Mask {
  return hidePersonalData && role === 'reader' ? masking : open
}

/** By parts of an address, letter after letter, all of it could be found out; by the whole of it, whose a send is. */
function problemsOfMasked(filter: unknown): { path: string; message: string }[] {
  if (typeof filter !== 'object' || filter === null) return []
  return Object.entries(filter)
    .filter(
      ([name, value]) => asking.includes(name) && value !== undefined && (name === 'recipient' || /[@＠]/.test(String(value))),
    )
    .map(([path]) => ({ path, message: 'addresses are hidden from role reader: search by a key or an ID' }))
}

function maskValue<Value>(value: Value, field = ''): Value {
  // What comes out has the shape of what goes in.
  return maskAny(value, field) as Value
}

function maskAny(value: unknown, field: string, isEmail = true): unknown {
  if (typeof value === 'string') {
    if (names.has(field)) return value
    return (contents.has(field) && isEmail) || (field === 'query' && namesAddress(value)) ? HIDDEN : hide(value)
  }
  if (Array.isArray(value)) return value.map((inner) => maskAny(inner, field))
  if (value === null || typeof value !== 'object' || value instanceof Date || ArrayBuffer.isView(value)) return value
  if (contents.has(field)) return {}
  // The audit has subjects too, which are names of things.
  const hasReader = !('actor' in value && 'via' in value)
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, maskAny(inner, name, hasReader)]))
}
