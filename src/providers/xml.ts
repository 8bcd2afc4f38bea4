/** An XML document as JSON would say it: the name of its root, and what is in it. */
interface XmlDocument {
  name: string
  value: unknown
}

interface Element {
  name: string
  attributes: ReadonlyMap<string, string>
  children: [name: string, value: unknown][]
  text: string
}

/** Levels of elements that a document may have, as of JSON (C-28). Its length is bounded by that of the body it came in. */
const MAX_DEPTH = 200

const NAME = String.raw`[A-Za-z_][\w.:-]*`
const ATTRIBUTE = String.raw`\s+${NAME}\s*=\s*(?:"[^"<]*"|'[^'<]*')`
const TAG = String.raw`<(?<opened>${NAME})(?<attributes>(?:${ATTRIBUTE})*)\s*(?<empty>/?)>|</(?<closed>${NAME})\s*>`
// A DOCTYPE is no token, so that no entity is ever declared. Each token can match in one way only: no text makes it slow.
const TOKEN = String.raw`<!--[^]*?-->|<!\[CDATA\[(?<data>[^]*?)\]\]>|${TAG}|(?<text>[^<]+)`
const DECLARATION = /^\ufeff?\s*<\?xml\s[^<>]*\?>/
const ENTITY = /&(?:(lt|gt|amp|quot|apos)|#(\d{1,7})|#x([\da-fA-F]{1,6}));/g
const ENTITIES: Readonly<Record<string, string>> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" }

/**
 * Reads a strict part of XML; undefined where a text is anything else. The attributes `type` (array, integer, boolean) and `nil`
 * tell how an element is meant; one that holds elements is an object, in which a repeated name is a list. Names stay as they are.
 */
export function readXml(text: string): XmlDocument | undefined {
  const token = new RegExp(TOKEN, 'y')
  token.lastIndex = DECLARATION.exec(text)?.[0].length ?? 0
  const open: Element[] = []
  let root: XmlDocument | undefined
  while (token.lastIndex < text.length) {
    const found = token.exec(text)?.groups
    if (!found) return undefined
    const inside = open.at(-1)
    const chars = found.data ?? (found.text === undefined ? '' : decoded(found.text))
    if (chars === undefined || (!inside && chars.trim() !== '')) return undefined
    if (inside) inside.text += chars
    if (found.opened !== undefined) {
      if (root || open.length === MAX_DEPTH) return undefined
      open.push({ name: found.opened, attributes: attributesOf(found.attributes ?? ''), children: [], text: '' })
    }
    if (found.closed === undefined && found.empty !== '/') continue
    const element = open.pop()
    const value = element && meaningOf(element)
    if (!element || value === undefined || (found.closed ?? element.name) !== element.name) return undefined
    const parent = open.at(-1)
    if (parent) parent.children.push([element.name, value])
    else root = { name: element.name, value }
  }
  return root
}

function attributesOf(text: string): Map<string, string> {
  return new Map(
    Array.from(text.matchAll(/([^\s=]+)\s*=\s*(?:"([^"]*)"|'([^']*)')/g), ([, name = '', double, single]) => [
      name,
      double ?? single ?? '',
    ]),
  )
}

/** The text with its entities resolved; undefined when it has others than XML's own five and numbers. */
function decoded(text: string): string | undefined {
  if (text.replace(ENTITY, '').includes('&')) return undefined
  return text.replace(ENTITY, (_whole, name?: string, decimal?: string, hex?: string) => {
    if (name !== undefined) return ENTITIES[name] ?? ''
    const code = decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal)
    // What else is no character becomes U+FFFD when the JSON is read.
    return code > 0x10ffff ? '\ufffd' : String.fromCodePoint(code)
  })
}

/** What an element says; undefined when it holds text beside its elements. */
function meaningOf({ attributes, children, text }: Element): unknown {
  const type = attributes.get('type')
  if (attributes.get('nil') === 'true') return null
  if ((type === 'array' || children.length > 0) && text.trim() !== '') return undefined
  if (type === 'array') return children.map(([, value]) => value)
  if (children.length > 0)
    return Object.fromEntries(
      Array.from(
        Map.groupBy(children, ([name]) => name),
        ([name, same]) => [name, same.length > 1 ? same.map(([, value]) => value) : same[0]?.[1]],
      ),
    )
  if (type === 'integer' && /^-?\d{1,15}$/.test(text)) return Number(text)
  return type === 'boolean' ? text === 'true' : text
}
