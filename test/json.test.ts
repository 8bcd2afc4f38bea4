import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { canonicalJson, parseExactly, parseJson } from '../src/providers/json.ts'

const BODY_H = String.raw`{"id":"evt_1","type":"invoice.paid","note":"Zoë 😀 \u00e9 a\/b","amount":10.00,"big":9007199254740993}`

const value = (text: string | Buffer) => {
  const parsed = parseJson(text)
  return parsed.ok ? parsed.value : parsed.reason
}
const canonical = (text: string, without?: string[]) => canonicalJson(parseExactly(text), { without })

test('C-03 skips a byte order mark', () => {
  expect(value(Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from('{"id":"evt_1"}')]))).toEqual({ id: 'evt_1' })
})

test('C-04 C-27 keeps names and digits of body H', () => {
  expect(value(Buffer.from(BODY_H))).toEqual({
    id: 'evt_1',
    type: 'invoice.paid',
    note: 'Zoë 😀 é a/b',
    amount: 10,
    big: '9007199254740993',
  })
})

test('C-26 replaces NUL and lone surrogates and leaves an escaped backslash alone', () => {
  const text = String.raw`{"id":"n1","name":"a\u0000b","lit":"c\\u0000d","k\u0000":1,"lone":"\ud83dx","pair":"\ud83d\ude00","list":["\udc00"]}`

  expect(value(text)).toEqual({
    id: 'n1',
    name: 'a\ufffdb',
    lit: String.raw`c\u0000d`,
    'k\ufffd': 1,
    lone: '\ufffdx',
    pair: '😀',
    list: ['\ufffd'],
  })
})

test('C-27 turns integers beyond 2^53 into their digits, wherever they stand, and nothing else', () => {
  const text =
    '{"a":9007199254740991,"b":9007199254740992,"c":[-9007199254740993, 12345678901234567890],"d":"9007199254740993","e":1.5,"f":9007199254740993.5}'

  expect(value(text)).toEqual({
    a: 9007199254740991,
    b: '9007199254740992',
    c: ['-9007199254740993', '12345678901234567890'],
    d: '9007199254740993',
    e: 1.5,
    f: 9007199254740994,
  })
})

test('C-28 reads 200 levels and refuses more, in linear time and before the parser sees them', () => {
  const nested = (levels: number) => `{"id":"d1","x":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`

  expect(value(nested(100))).toMatchObject({ id: 'd1' })
  expect(value(nested(200))).toMatchObject({ id: 'd1' })
  expect(value(nested(201))).toBe('too_deep')
  expect(value(nested(5_000))).toBe('too_deep')
  expect(value(nested(100_000))).toBe('too_deep')
  expect(value('['.repeat(100_000))).toBe('too_deep')
  expect(value(`{"id":"d1","text":"${'['.repeat(1_000)}\\"${'{'.repeat(1_000)}"}`)).toMatchObject({ id: 'd1' })
  expect(value(`[${'{"a":[]},'.repeat(1_000)}{}]`)).toHaveLength(1_001)
})

describe('C-29 says why a text holds no JSON', () => {
  test.each([
    ['', 'empty_body'],
    [' \r\n', 'empty_body'],
    ['\ufeff', 'empty_body'],
    ['ping', 'not_json'],
    ['{"id":"x"', 'not_json'],
    ['{"id":"x"}}', 'not_json'],
    ['{"id":"a\0b"}', 'not_json'],
    ['payload=%7B%7D', 'not_json'],
  ])('C-29 %j is %s', (text, reason) => {
    expect(parseJson(Buffer.from(text))).toEqual({ ok: false, reason })
  })
})

test('reads invalid UTF-8 as U+FFFD instead of losing the event', () => {
  expect(value(Buffer.from([...Buffer.from('{"a":"'), 0xff, 0xc3, ...Buffer.from('"}')]))).toEqual({ a: '\ufffd\ufffd' })
})

test('keeps __proto__ a key and merges it into nothing', () => {
  const text = String.raw`{"__proto__":{"isAdmin":true},"nul":"\u0000","big":9007199254740993}`
  const parsed = value(text) as Record<string, unknown>

  expect(Object.keys(parsed)).toEqual(['__proto__', 'nul', 'big'])
  expect(Object.getPrototypeOf(parsed)).toBe(Object.prototype)
  expect(parsed.isAdmin).toBeUndefined()
  expect(({} as Record<string, unknown>).isAdmin).toBeUndefined()
})

test('parses what JSON.parse parses, to the same value, whatever it is', () => {
  fc.assert(
    fc.property(fc.jsonValue({ noUnicodeString: false }), (any) => {
      const text = JSON.stringify(any)
      const isPlain = !/\\u(0000|d[89a-f])/i.test(text) && !/\d{16}/.test(text)
      fc.pre(isPlain)

      expect(value(text)).toEqual(JSON.parse(text))
    }),
  )
})

test('two ways to write one value have one canonical text', () => {
  const one = String.raw`{"b":[1,{"y":"\u00e9","x":"a\/b"}],"a":null}`
  const other = ' { "a" : null, "b" : [ 1, { "x" : "a/b", "y" : "é" } ] } '

  expect(canonical(one)).toBe('{"a":null,"b":[1,{"x":"a/b","y":"é"}]}')
  expect(canonical(other)).toBe('{"a":null,"b":[1,{"x":"a/b","y":"é"}]}')
})

test('numbers are compared as written', () => {
  expect(canonical('{"amount":10.0}')).not.toBe(canonical('{"amount":10.00}'))
  expect(canonical('{"id":9007199254740992}')).not.toBe(canonical('{"id":9007199254740993}'))
  expect(canonical('{"a":-0}')).not.toBe(canonical('{"a":0}'))
  expect(canonical('{"a":1}')).not.toBe(canonical('{"a":"1"}'))
  expect(canonical('{"rawJSON":"1"}')).toBe('{"rawJSON":"1"}')
})

test('what is left out is left out at the top only', () => {
  expect(canonical('{"id":1,"pending":2,"data":{"pending":3}}', ['pending'])).toBe('{"data":{"pending":3},"id":1}')
})

test('a text that would be read with loss has no exact reading', () => {
  expect(parseExactly(Buffer.from([0x22, 0xff, 0x22]))).toBeUndefined()
  expect(parseExactly('{')).toBeUndefined()
})

test('C-27 a long integer keeps its digits wherever it stands', () => {
  for (let before = 0; before < 40; before += 1) {
    for (const digits of ['9007199254740993', '-9007199254740993', '123456789012345678901']) {
      expect(parseJson(`${' '.repeat(before)}[${digits}]`), `${digits} at ${before}`).toEqual({ ok: true, value: [digits] })
    }
  }
})

test('C-27 digits without end in a string are looked at once', () => {
  // Looked at from each of its places, this would take hours.
  expect(parseJson(`{"a":"${'1'.repeat(5_000_000)}","b":[9007199254740993]}`)).toMatchObject({
    value: { b: ['9007199254740993'] },
  })
})

test('C-28 brackets in strings count for no level, however many, and those outside for one each', () => {
  const strings = JSON.stringify(Array.from({ length: 300 }, () => '[{'))
  const deep = (levels: number) => `${'['.repeat(levels)}${strings}${']'.repeat(levels)}`

  expect(parseJson(deep(199)).ok).toBe(true)
  expect(parseJson(deep(200))).toEqual({ ok: false, reason: 'too_deep' })
})
