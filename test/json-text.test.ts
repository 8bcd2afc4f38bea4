import fc from 'fast-check'
import { expect, test } from 'vitest'
import { diffOf } from '../src/ops/page/diff.ts'
import { indented } from '../src/ops/page/json-text.ts'

test('a body is indented between its tokens, which stay as they were sent', () => {
  expect(
    indented('{"amount":10.00,"big":9007199254740993,"amount":1e5,"t":"\\u00e9 \\" , [","none":{},"empty":[ ],"list":[1,-0]}'),
  ).toBe(
    `{
  "amount": 10.00,
  "big": 9007199254740993,
  "amount": 1e5,
  "t": "\\u00e9 \\" , [",
  "none": {},
  "empty": [],
  "list": [
    1,
    -0
  ]
}`,
  )
})

test('what does not read as JSON is left as it is', () => {
  for (const text of ['', 'ping', 'a=1&b=2', '<xml/>', '{"a":"b', ']', '[[]']) expect(indented(text), text).toBeUndefined()
})

test('indenting changes nothing but blanks between tokens', () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 6 }), fc.constantFrom(undefined, 1, '\t'), (value, space) => {
      const text = JSON.stringify([value], undefined, space)

      expect(JSON.stringify(JSON.parse(indented(text) ?? ''))).toBe(JSON.stringify(JSON.parse(text)))
      expect(indented(text)).toBe(indented(JSON.stringify([value])))
    }),
  )
})

test('a body of nothing but brackets stays within a small multiple of its length', () => {
  const deep = '['.repeat(30_000) + ']'.repeat(30_000)

  expect(indented(deep)?.length).toBeLessThan(60_000 * 45)
})

test('the difference of two bodies is the lines that changed', () => {
  expect(diffOf('{\n  "a": 10.00,\n  "b": 1\n}', '{\n  "a": 12.00,\n  "b": 1\n}')).toEqual([
    { kind: 'same', text: '{' },
    { kind: 'removed', text: '  "a": 10.00,' },
    { kind: 'added', text: '  "a": 12.00,' },
    { kind: 'same', text: '  "b": 1' },
    { kind: 'same', text: '}' },
  ])
  expect(diffOf('a', 'a')).toEqual([{ kind: 'same', text: 'a' }])
})

test('from a difference both texts can be read, and it is no longer than both', () => {
  const lines = fc.array(fc.constantFrom('a', 'b', 'c', ''), { minLength: 1, maxLength: 12 })
  fc.assert(
    fc.property(lines, lines, (old, fresh) => {
      const diff = diffOf(old.join('\n'), fresh.join('\n'))
      const without = (kind: string) => diff.filter((line) => line.kind !== kind).map(({ text }) => text)

      expect(without('added')).toEqual(old)
      expect(without('removed')).toEqual(fresh)
    }),
  )
})

test('two long bodies with nothing in common are compared in little time and memory', () => {
  const long = (letter: string) => Array.from({ length: 5_000 }, (_, index) => `${letter}${index}`).join('\n')

  expect(diffOf(long('a'), long('b'))).toHaveLength(10_000)
})
