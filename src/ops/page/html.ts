// Every value that a page shows passes here: text is escaped, and what a reader couldn't see in it is made visible.

const MARKUP = Symbol('markup')

/** Markup made by `html`; no value from outside can pass for it. */
export interface Html {
  readonly [MARKUP]: string
}

export type Part = Html | string | number | bigint | null | undefined | false | readonly Part[]

const SPECIAL = /[&<>"']/
/** By the number of the character. */
const ENTITIES: Record<number, string | undefined> = { 34: '&quot;', 38: '&amp;', 39: '&#39;', 60: '&lt;', 62: '&gt;' }
// Control, format (bidi, zero width), line and paragraph separators, lone surrogates: what could move, hide or fake other text.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]+/gu
/** What stands for each that was seen; there are some thousands of them. */
const chips = new Map([...'\t\n\r'].map((character) => [character, character]))

/** For each gap of a template whether it stands inside a tag, where no element can. */
const places = new WeakMap<TemplateStringsArray, readonly boolean[]>()

/** A piece of a page. Its values become text, `null`, `undefined` and `false` nothing, lists their parts one after the other. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  let insideTag = places.get(strings)
  if (!insideTag) {
    insideTag = placesOf(strings)
    places.set(strings, insideTag)
  }
  let text = strings[0] ?? ''
  for (const [index, part] of parts.entries()) text += written(part, insideTag[index] ?? false) + (strings[index + 1] ?? '')
  return { [MARKUP]: text }
}

/** The characters of a page, to be sent. */
export function markupOf(page: Html): string {
  return page[MARKUP]
}

/** An attribute with its value, or nothing without one; `true` is the bare name. */
export function attribute(name: string, value: string | number | boolean | null | undefined): Html {
  if (value === null || value === undefined || value === false) return html``
  // The name is a literal of ours at every call.
  return { [MARKUP]: value === true ? ` ${name}` : ` ${name}="${escaped(String(value))}"` }
}

function written(part: Part, insideTag: boolean): string {
  if (part === null || part === undefined || part === false) return ''
  if (typeof part === 'object') {
    if (MARKUP in part) return part[MARKUP]
    return part.map((each) => written(each, insideTag)).join('')
  }
  return insideTag ? escaped(String(part)) : shown(String(part))
}

/** A loop without a call for each character: a text of quotes alone must not take longer than its length. */
function escaped(text: string): string {
  if (!SPECIAL.test(text)) return text
  let done = ''
  let from = 0
  for (let at = 0; at < text.length; at += 1) {
    const entity = ENTITIES[text.charCodeAt(at)]
    if (entity === undefined) continue
    if (from < at) done += text.slice(from, at)
    done += entity
    from = at + 1
  }
  return from < text.length ? done + text.slice(from) : done
}

/** Text between tags: an invisible character is shown by its number. */
function shown(text: string): string {
  return escaped(text).replace(INVISIBLE, (run) => {
    let done = ''
    for (const character of run) done += chipOf(character)
    return done
  })
}

function chipOf(character: string): string {
  const known = chips.get(character)
  if (known !== undefined) return known
  const number = character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0')
  const chip = `<span class="chip">U+${number}</span>`
  chips.set(character, chip)
  return chip
}

function placesOf(strings: TemplateStringsArray): boolean[] {
  let before = ''
  return strings.slice(0, -1).map((string) => {
    before += string
    return before.lastIndexOf('<') > before.lastIndexOf('>') || /="[^"<>]*$/.test(before)
  })
}
