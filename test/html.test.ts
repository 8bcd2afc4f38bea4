import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { attribute, html, markupOf } from '../src/ops/page/html.ts'

const written = (page: ReturnType<typeof html>) => markupOf(page)

test('C-67 text of strangers stays text, between tags and in attributes', () => {
  const hostile = `<img src=x onerror=alert(1)> "></td><script>alert(1)</script> ' & <svg onload=alert(1)>`

  expect(written(html`<p title="${hostile}">${hostile}</p>`)).toBe(
    '<p title="&lt;img src=x onerror=alert(1)&gt; &quot;&gt;&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt; &#39; &amp; &lt;svg onload=alert(1)&gt;">' +
      '&lt;img src=x onerror=alert(1)&gt; &quot;&gt;&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt; &#39; &amp; &lt;svg onload=alert(1)&gt;</p>',
  )
  expect(written(html`<p${attribute('title', '"><b>')}></p>`)).toBe('<p title="&quot;&gt;&lt;b&gt;"></p>')
})

test('an object that looks like markup is text, whatever its keys are', () => {
  const payload = JSON.parse('{"text":"<b>","Symbol(markup)":"<b>"}')

  expect(() => written(html`<p>${payload}</p>`)).toThrow()
})

test('C-67 characters that nobody would see are shown by their numbers between tags, and line breaks stay', () => {
  expect(written(html`<p title="${'a\u202eb'}">${'a\u202eb\u200bc\u0000d\ne\tf'}</p>`)).toBe(
    '<p title="a\u202eb">a<span class="chip">U+202E</span>b<span class="chip">U+200B</span>c<span class="chip">U+0000</span>d\ne\tf</p>',
  )
  expect(written(html`${'\ud800'}`)).toBe('<span class="chip">U+D800</span>')
})

test('C-67 what must be escaped is, wherever it stands and however much there is of it', () => {
  expect(written(html`${'"'.repeat(400_000)}`)).toBe('&quot;'.repeat(400_000))
  expect(written(html`${`a${"<&'>".repeat(2)}b"`}`)).toBe('a&lt;&amp;&#39;&gt;&lt;&amp;&#39;&gt;b&quot;')
  expect(written(html`${'a<'}${'<a'}${'<'}${'plain'}${''}`)).toBe('a&lt;&lt;a&lt;plain')
  expect(written(html`${'é<日>😀&'}`)).toBe('é&lt;日&gt;😀&amp;')
  expect(written(html`${'\u202e'.repeat(3)}${'\u202e<'}`)).toBe(`${'<span class="chip">U+202E</span>'.repeat(4)}&lt;`)
})

test('nothing is written for what is not there, and lists are written one after the other', () => {
  expect(written(html`${null}${undefined}${false}${0}${''}${[html`<i>a</i>`, 'b<', [1n]]}`)).toBe('0<i>a</i>b&lt;1')
  expect(
    written(html`<a${attribute('hidden', false)}${attribute('x', null)}${attribute('y', true)}${attribute('z', 0)}></a>`),
  ).toBe('<a y z="0"></a>')
})

test('a template of the page puts values into quoted attributes and text only, never into a script, a style or a name', () => {
  const folder = 'src/ops/page'
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'))
  const wrong = files.flatMap((file) =>
    readFileSync(join(folder, file), 'utf8')
      .split('\n')
      .filter(
        (line) =>
          /\s[\w-]+=\$\{|<\$\{|<\/\$\{|<(script|style)[^>]*>[^<]*\$\{|\sstyle="|\son[a-z]+="|javascript:|hx-on/.test(line) &&
          /html`|^\s*</.test(line),
      )
      .map((line) => `${file}: ${line.trim()}`),
  )

  expect(wrong).toEqual([])
  expect(files.length).toBeGreaterThan(10)
})
