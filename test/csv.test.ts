import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { readCsv } from '../src/sends/csv.ts'

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')

async function* pieces(bytes: Uint8Array, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

async function read(input: string | Uint8Array, size = 7) {
  const records = []
  for await (const record of readCsv(pieces(typeof input === 'string' ? Buffer.from(input) : input, size))) records.push(record)
  return records
}
const cellsOf = async (input: string | Uint8Array, size?: number) => (await read(input, size)).map(({ cells }) => cells)

describe('a file of RFC 4180', () => {
  test.each([
    [
      'plain cells',
      'a,b\n1,2\n',
      [
        ['a', 'b'],
        ['1', '2'],
      ],
    ],
    [
      'CRLF and no line break at the end',
      'a,b\r\n1,2',
      [
        ['a', 'b'],
        ['1', '2'],
      ],
    ],
    [
      'a byte order mark',
      '\ufeffa,b\n1,2\n',
      [
        ['a', 'b'],
        ['1', '2'],
      ],
    ],
    [
      'quotes, doubled quotes and delimiters in quotes',
      '"a","b"\n"x ""y"" z","1,2"\n',
      [
        ['a', 'b'],
        ['x "y" z', '1,2'],
      ],
    ],
    [
      'line breaks in quotes',
      'a,b\n"1\r\n2","3\n4"\n',
      [
        ['a', 'b'],
        ['1\r\n2', '3\n4'],
      ],
    ],
    [
      'empty cells',
      'a,b,c\n,,\n"",,""\n',
      [
        ['a', 'b', 'c'],
        ['', '', ''],
        ['', '', ''],
      ],
    ],
    [
      'semicolons',
      'a;b\n"1;2";3,4\n',
      [
        ['a', 'b'],
        ['1;2', '3,4'],
      ],
    ],
    [
      'tabs',
      'a\tb\n1\t2\n',
      [
        ['a', 'b'],
        ['1', '2'],
      ],
    ],
    [
      'a header whose quoted names have commas',
      '"a,b,c";d\n1;2\n',
      [
        ['a,b,c', 'd'],
        ['1', '2'],
      ],
    ],
    [
      'blank lines between and behind',
      'a,b\n\n1,2\r\n\r\n\n',
      [
        ['a', 'b'],
        ['1', '2'],
      ],
    ],
    [
      'blanks as a part of the cell',
      'a, b\n 1 ,2\n',
      [
        ['a', ' b'],
        [' 1 ', '2'],
      ],
    ],
    [
      'letters of several bytes',
      'ä,→\n€,😀\n',
      [
        ['ä', '→'],
        ['€', '😀'],
      ],
    ],
    ['one column', 'a\n1\n', [['a'], ['1']]],
  ])('has %s', async (_what, text, expected) => {
    for (const size of [1, 2, 1_000]) expect(await cellsOf(text, size)).toEqual(expected)
  })

  test('tells each record by the number of its first line and the hash of its text', async () => {
    expect(await read('a,b\r\n"1\n2",3\r\n\r\n4,5')).toEqual([
      { line: 1, sha256: sha256('a,b'), cells: ['a', 'b'] },
      { line: 2, sha256: sha256('"1\n2",3'), cells: ['1\n2', '3'] },
      { line: 5, sha256: sha256('4,5'), cells: ['4', '5'] },
    ])
  })

  test('that is empty has no records', async () => {
    expect(await read('')).toEqual([])
    expect(await read('\n\r\n')).toEqual([])
  })

  test('reads back whatever cells were quoted, cut anywhere', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.string({ unit: 'grapheme' }), fc.string()), { minLength: 1, maxLength: 5 }),
        fc.constantFrom(',', ';', '\t'),
        fc.constantFrom('\n', '\r\n'),
        fc.integer({ min: 1, max: 9 }),
        async (rows, delimiter, end, size) => {
          const quoted = (cell: string) => `"${cell.replaceAll('"', '""')}"`
          const text = [['one', 'two'], ...rows].map((row) => row.map(quoted).join(delimiter) + end).join('')
          expect(await cellsOf(text, size)).toEqual([['one', 'two'], ...rows])
        },
      ),
      { numRuns: 200 },
    )
  })
})

describe('what is no CSV is refused with its line', () => {
  test.each([
    ['a quote in a cell without quotes', 'a,b\n1,x"y"\n', 'line 2 has a quote'],
    ['text behind a closing quote', 'a,b\n1,2\n"1"x,2\n', 'line 3 has text behind a closing quote'],
    ['a quote that is not closed', 'a,b\n1,"2\n3,4\n', 'a quote in line 2 is not closed'],
    ['another number of cells', 'a,b\n1,2\n1,2,3\n', 'line 3 has 3 cells, but the first one has 2'],
    ['a bare CR', 'a,b\n1\r2,3\n', 'line 2 has a quote or a line break'],
  ])('%s', async (_what, text, message) => {
    await expect(read(text)).rejects.toThrow(message)
  })

  test('another encoding', async () => {
    await expect(read(Buffer.from('a,b\n\u00e9,1\n', 'latin1'))).rejects.toThrow('not in UTF-8')
    await expect(read(Buffer.from('\ufeffa,b\n', 'utf16le'))).rejects.toThrow('not in UTF-8')
    await expect(read(Buffer.from('a,b\n1,€').subarray(0, -1))).rejects.toThrow('not in UTF-8')
  })

  test('a record beyond the limit, before all of it is read', async () => {
    let given = 0
    async function* long() {
      yield Buffer.from('a,b\n1,"')
      for (; given < 1_000; given += 1) yield Buffer.alloc(10_000, 'x')
    }
    const reading = (async () => {
      for await (const _ of readCsv(long()));
    })()

    await expect(reading).rejects.toThrow('line 2 is longer than 65536 characters, or a quote in it is not closed')
    expect(given).toBeLessThan(10)
  })

  test('a file beyond the limit', async () => {
    const megabyte = Buffer.from(`${'x'.repeat(1_022)},\n`.repeat(1_000))
    async function* large() {
      for (let count = 0; count < 210; count += 1) yield megabyte
    }
    const reading = (async () => {
      for await (const _ of readCsv(large()));
    })()

    await expect(reading).rejects.toThrow('larger than 200000000 bytes')
  })
})
