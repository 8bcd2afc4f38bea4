import { isRecord } from './json.ts'

// What people may know an event by beside its own ID: the IDs, numbers and addresses in its payload.

const MOST_REFS = 16
/** So many values are looked at, and so many of one depth. */
const MOST_VALUES = 5_000
const MOST_OF_LEVEL = 1_000
const LONGEST = 200

/** Fields by whose name their value is one: `id`, `order_id`, `invoiceNumber`, `reference`, `email`, `to`. */
const NAMING = /(?:^|_)(?:id|ids|number|no|nr|ref|reference|email|mail|to|recipient)$/
/** IDs that say by themselves what they are of: `cus_9s6XKzkNRiz8i3`. */
const PREFIXED = /^[a-z]{2,12}_[A-Za-z0-9]{6,}$/
const ADDRESS = /^[^\s@]+@[^\s@]+\.[^\s@]+$/
/** What opens a door is no name. */
const SECRET = /secret|token|password|passwd|signature|authorization|(?:api|public|private|access|session)_?key/i

/** How a reference is kept and looked for. */
export const refOf = (text: string) => text.trim().toLowerCase()

/** What a payload names, the outermost first: in lower case, each once, 16 at most, without what `known` has already. */
export function refsOf(payload: unknown, first: string | null, known: readonly string[] = []): string[] {
  const refs = new Set<string>()
  const without = new Set(known.map(refOf))
  const add = (text: string) => {
    const ref = refOf(text)
    if (refs.size < MOST_REFS && ref.length >= 3 && ref.length <= LONGEST && !without.has(ref)) refs.add(ref)
  }
  if (first !== null) add(first)
  let level: [field: string, value: unknown][] = [['', payload]]
  for (let looked = 0; level.length > 0 && looked < MOST_VALUES && refs.size < MOST_REFS; looked += level.length) {
    for (const [field, value] of level) if (isNaming(field, value)) add(String(value))
    level = level.flatMap(([field, value]) => inside(field, value)).slice(0, MOST_OF_LEVEL)
  }
  return [...refs]
}

function isNaming(field: string, value: unknown): boolean {
  if (typeof value === 'number') return Number.isSafeInteger(value) && NAMING.test(snakeCase(field))
  if (typeof value !== 'string' || value.length > LONGEST || /\s|:\/\//.test(value.trim()) || SECRET.test(field)) return false
  return NAMING.test(snakeCase(field)) || PREFIXED.test(value) || ADDRESS.test(value)
}

const snakeCase = (field: string) =>
  field
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replaceAll('-', '_')
    .toLowerCase()

/** The fields of an object, or the members of a list under the list's own name. */
function inside(field: string, value: unknown): [string, unknown][] {
  if (Array.isArray(value)) return value.map((member) => [field, member])
  return isRecord(value) ? Object.entries(value) : []
}
