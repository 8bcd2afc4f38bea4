import type { Request } from 'express'
import { expect, test, vi } from 'vitest'
import { multipartFields } from '../src/ops/page/multipart.ts'

const TYPE = 'multipart/form-data; boundary=xYz'
const asked = (body: string | Buffer, type = TYPE) =>
  multipartFields({ get: () => type, body: Buffer.isBuffer(body) ? body : Buffer.from(body) } as unknown as Request)
const part = (name: string, content: string, more = '') =>
  `--xYz\r\nContent-Disposition: form-data; name="${name}"${more}\r\n\r\n${content}\r\n`

test('the fields of a form are read, and a file as its bytes', () => {
  const body = `${part('form', 'id-1')}${part('reason', 'für Ada')}--xYz\r\ncontent-disposition: form-data; name="file"; filename="a;name=b.csv"\r\nContent-Type: text/csv\r\n\r\na,b\r\n--xY\r\n\r\n--xYz--\r\n`

  expect(asked(body)).toEqual({ form: 'id-1', reason: 'für Ada', file: Buffer.from('a,b\r\n--xY\r\n') })
  expect(asked(body, 'multipart/form-data; charset=utf-8; boundary="xYz"')).toHaveProperty('form', 'id-1')
})

test('an empty file, and a file that is not UTF-8, are as they are', () => {
  const bytes = Buffer.from([0xff, 0xfe, 0x0d, 0x0a, 0x2d])
  const file = Buffer.concat([
    Buffer.from(part('empty', '', '; filename=""')),
    Buffer.from('--xYz\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'),
    bytes,
    Buffer.from('\r\n--xYz--'),
  ])

  expect(asked(file)).toEqual({ empty: Buffer.alloc(0), file: bytes })
})

test('I18 more than 20 parts are not read', () => {
  const some = (count: number) => `${Array.from({ length: count }, (_, index) => part(`f${index}`, 'x')).join('')}--xYz--`

  expect(Object.keys(asked(some(20)))).toHaveLength(20)
  expect(asked(some(21))).toEqual({})
})

test.each([
  ['nothing', ''],
  ['no end', part('form', 'id-1')],
  ['no headers', '--xYz\r\nnothing\r\n--xYz--'],
  ['headers without end', `--xYz\r\n${'X-A: b\r\n'.repeat(1_000)}\r\nx\r\n--xYz--`],
  ['a part without a name', '--xYz\r\nContent-Disposition: form-data\r\n\r\nx\r\n--xYz--'],
  ['another boundary', '--other\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--other--'],
])('%s is no form', (_, body) => {
  expect(asked(body)).toEqual({})
})

test.each([
  'text/plain',
  'multipart/form-data',
  `multipart/form-data; boundary=${'x'.repeat(71)}`,
  'multipart/mixed; boundary=xYz',
])('%s is no type of a form with a file', (type) => {
  expect(asked(`${part('a', 'x')}--xYz--`, type)).toEqual({})
})

test('a field of any name is only a field', () => {
  const fields = asked(`${part('__proto__', 'x')}--xYz--`)

  expect(Object.keys(fields)).toEqual(['__proto__'])
  expect(({} as Record<string, unknown>).x).toBeUndefined()
})

test('I18 a large file is searched in as many steps as the form has parts, and not copied', () => {
  const file = Buffer.alloc(5_000_000, '\r\n--xY')
  const body = Buffer.concat([
    Buffer.from(`${part('form', 'id-1')}--xYz\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n`),
    file,
    Buffer.from('\r\n--xYz--'),
  ])
  const searched = vi.spyOn(Buffer.prototype, 'indexOf')

  const fields = asked(body)
  const steps = searched.mock.calls.length
  searched.mockRestore()

  expect(steps).toBe(4)
  expect(fields.file).toHaveLength(5_000_000)
  expect((fields.file as Buffer).buffer).toBe(body.buffer)
})
