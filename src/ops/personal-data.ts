import type { Config } from '../config.ts'
import type { Role } from './tokens.ts'

/** What somebody may not see, taken out of what they get. */
export interface Mask {
  /** Whether bodies of events, and anything else that can't be masked, must not be shown at all. */
  isOn: boolean
  /** One text without the addresses in it. */
  text(value: string): string
  /** The same object with addresses masked and the content of messages hidden; `dedupe_key` and cursors stay, as they are names. */
  apply<Value>(value: Value): Value
}

const HIDDEN = '(hidden)'
/** What a local part may hold, quoted ones and other scripts included. */
const ADDRESS = /("[^"\s]{1,64}"|[^\s@<>()[\],;:"'“”→]{1,64})@([^\s@<>()[\],;:"'“”]{1,253})/gu
/** Names of things, by which they are asked for again. */
const names = new Set(['dedupe_key', 'next_cursor', 'id', 'event', 'source', 'plan'])
/** What an email or a payload says. */
const contents = new Set(['html_body', 'text_body', 'template_data', 'subject', 'from_name'])

const hide = (text: string) => text.replace(ADDRESS, (_, local: string, domain: string) => `${[...local][0]}•••@${domain}`)

const open: Mask = { isOn: false, text: (value) => value, apply: (value) => value }
const masking: Mask = { isOn: true, text: hide, apply: maskValue }

/** What a person or token of this role may see of addresses and bodies, by the configuration. */
export function maskFor(role: Role, { hidePersonalData }: Pick<Config, 'hidePersonalData'>): Mask {
  return hidePersonalData && role === 'reader' ? masking : open
}

function maskValue<Value>(value: Value, field = ''): Value {
  // What comes out has the shape of what goes in.
  return maskAny(value, field) as Value
}

function maskAny(value: unknown, field: string, isEmail = true): unknown {
  if (typeof value === 'string') return names.has(field) ? value : contents.has(field) && isEmail ? HIDDEN : hide(value)
  if (Array.isArray(value)) return value.map((inner) => maskAny(inner, field))
  if (value === null || typeof value !== 'object' || value instanceof Date || ArrayBuffer.isView(value)) return value
  if (contents.has(field)) return {}
  // The audit has subjects too, which are names of things.
  const hasReader = !('actor' in value && 'via' in value)
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, maskAny(inner, name, hasReader)]))
}
