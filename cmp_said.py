import json
a=json.load(open("/tmp/w/Cx/before.said")); b=json.load(open("/tmp/w/Cx/C.said"))
import difflib,re
norm=lambda t: re.sub(r"(right \S+: (inputs, dy and cache stay as they were; called twice it says the same|a second use before the backward disturbs nothing) )","",t)
n=0
for k in a:
    if k not in b: print("missing",k); continue
    x=[norm(t) if isinstance(t,str) else t for t in a[k]]
    if x!=b[k]:
        n+=1; print(k); 
        for t,u in zip(x,b[k]):
            if t!=u and n<8 and isinstance(t,str): print("   ", "\n    ".join(l for l in difflib.unified_diff(re.split(r"(?<=[.:]) ",t),re.split(r"(?<=[.:]) ",u),lineterm="",n=0)))
            elif t!=u and n<8: print("   ", "\n    ".join(l for l in difflib.unified_diff(t[1].splitlines(),u[1].splitlines(),lineterm="",n=0)))
print(n,"of",len(a))
