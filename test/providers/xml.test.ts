import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { readXml } from '../../src/providers/xml.ts'

const inside = (text: string) => readXml(`<n>${text}</n>`)?.value

test('reads elements, attributes and texts as what they mean', () => {
  const text = `<?xml version="1.0" encoding="UTF-8"?>
<!-- a comment with <tags> & such -->
<notification>
  <timestamp type="datetime">2026-09-21T14:13:05Z</timestamp>
  <kind>check</kind>
  <add_ons type="array"></add_ons>
  <list type="array"><item><id>1</id></item><item nil="true"/><item>x</item></list>
  <count type='integer'>42</count><huge type="integer">9007199254740993</huge><odd type="integer">4x</odd>
  <yes type="boolean">true</yes><no type = "boolean" >false</no >
  <none nil="true"></none><empty/><last-4>1234</last-4>
  <tag>a</tag><tag>b</tag>
  <note>Zoë &amp; &lt;東京&gt; &quot;x&quot; &apos; &#233;&#xe9;&#x1F680; <![CDATA[<b>&amp;</b>]]></note>
  <__proto__><admin>1</admin></__proto__>
</notification>
`
  const expected = JSON.parse(`{"timestamp":"2026-09-21T14:13:05Z","kind":"check","add_ons":[],"list":[{"id":"1"},null,"x"],
    "count":42,"huge":"9007199254740993","odd":"4x","yes":true,"no":false,"none":null,"empty":"","last-4":"1234","tag":["a","b"],
    "note":"Zoë & <東京> \\"x\\" ' éé🚀 <b>&amp;</b>","__proto__":{"admin":"1"}}`)

  expect(readXml(text)).toEqual({ name: 'notification', value: expected })
  expect(({} as { admin?: unknown }).admin).toBeUndefined()
})

test.each([
  ['a DOCTYPE', '<!DOCTYPE n><n/>'],
  ['an entity of its own', '<!DOCTYPE n [<!ENTITY a "b">]><n>&a;</n>'],
  ['an external entity', '<!DOCTYPE n [<!ENTITY a SYSTEM "file:///etc/passwd">]><n>&a;</n>'],
  ['an unknown entity', '<n>&nbsp;</n>'],
  ['an entity that objects inherit', '<n>&constructor;</n>'],
  ['a lone ampersand', '<n>a & b</n>'],
  ['an entity cut off', '<n>&lt</n>'],
  ['nothing', ''],
  ['white space', ' \n'],
  ['text', 'notification'],
  ['text after the root', '<n/>x'],
  ['text before the root', 'x<n/>'],
  ['two roots', '<n/><n/>'],
  ['an element that is not closed', '<n><a></n>'],
  ['an element that is only closed', '</n>'],
  ['elements that overlap', '<n><a><b></a></b></n>'],
  ['another case', '<n></N>'],
  ['text beside elements', '<n>x<a/></n>'],
  ['text in a list', '<n type="array">x</n>'],
  ['an attribute without quotes', '<n type=array></n>'],
  ['a tag in an attribute', '<n a="<b>"></n>'],
  ['a processing instruction', '<n><?php exit ?></n>'],
  ['a comment that is not closed', '<n/><!-- x'],
  ['a name that is none', '<1/>'],
  ['a cut text', '<n><a>x</'],
])('reads no text with %s', (_name, text) => {
  expect(readXml(text)).toBeUndefined()
})

test('C-28 reads 200 levels and no more', () => {
  const nested = (depth: number) => '<a>'.repeat(depth) + '</a>'.repeat(depth)

  expect(readXml(nested(200))?.name).toBe('a')
  expect(readXml(nested(201))).toBeUndefined()
  expect(readXml('<a>'.repeat(100_000))).toBeUndefined()
})

test('numbers beyond Unicode become U+FFFD', () => {
  expect([inside('&#1114111;'), inside('&#1114112;'), inside('&#xffffff;')]).toEqual(['\u{10ffff}', '\ufffd', '\ufffd'])
})

const name = fc.stringMatching(/^[a-z_][\w.-]{0,8}$/)
type Tree = string | Map<string, Tree>
const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4 },
    fc.string({ unit: 'grapheme' }),
    fc
      .uniqueArray(fc.tuple(name, tie('tree')), { minLength: 1, maxLength: 4, selector: ([key]) => key })
      .map((pairs) => new Map(pairs)),
  ),
}))

function written(value: Tree): string {
  if (typeof value === 'string') return value.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  return Array.from(value, ([key, inside]) => `<${key}>\n${' '.repeat(key.length)}${written(inside)}</${key}>`).join('')
}

function meant(value: Tree, indent = ''): unknown {
  if (typeof value === 'string') return indent + value
  return Object.fromEntries(Array.from(value, ([key, inside]) => [key, meant(inside, `\n${' '.repeat(key.length)}`)]))
}

describe('any text', () => {
  test('that says a tree of texts is read as that tree', () => {
    fc.assert(
      fc.property(tree, (value) => {
        expect(inside(written(value))).toEqual(meant(value))
      }),
    )
  })

  test('is read or not, but never throws', () => {
    const part = fc.constantFrom(
      '<',
      '>',
      '/',
      '<a',
      '<a>',
      '</a>',
      '<a/>',
      '&',
      ';',
      '&#',
      '"',
      "'",
      '=',
      ' ',
      'x',
      '<!--',
      '-->',
      '<![CDATA[',
      ']]>',
      '<?xml ',
      '?>',
      '\0',
    )
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.array(part, { maxLength: 40 }).map((parts) => parts.join('')),
        ),
        (text) => {
          const read = readXml(text)
          expect(read === undefined || typeof read.name === 'string').toBe(true)
        },
      ),
      { numRuns: 2_000 },
    )
  })

  test.each(['<a', ' a="b"', '&', '<!--', '<a ', '<![CDATA[', '&#x', '<a b="', '<?xml ', ' ', '<a b = ', '&lt'])(
    'of a megabyte is done with quickly: %j',
    (part) => {
      const started = performance.now()
      for (const text of [
        part.repeat(1_000_000 / part.length),
        `<n${part.repeat(1_000_000 / part.length)}`,
        `<n>${part.repeat(250_000)}`,
      ])
        expect(readXml(text)).toBeUndefined()

      expect(performance.now() - started).toBeLessThan(5_000)
    },
  )
})
