#!/usr/bin/env node
// Plain JavaScript, so that an older Node can still read it and say what to do.
const [major = 0] = process.versions.node.split('.').map(Number)
if (major < 24) {
  console.error(`oncehook needs Node 24, this is ${process.versions.node}. Node 24 came along with npm install:`)
  console.error('use npx oncehook …, npm start or npm run, which find it.')
  process.exit(78)
}
const { main } = await import('../src/cli.ts')
await main(process.argv)
