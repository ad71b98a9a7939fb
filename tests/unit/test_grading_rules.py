"""The rules of the audited grader, kind by kind, beyond the shared cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.grading.audited import judge
from tasks.grading.rules import rule_of

CASES = json.loads((Path(__file__).parents[1] / "data" / "grading_cases.json").read_text())

# kind: (gold, answers that are right, answers that are wrong)
TABLE: dict[str, list[tuple[str, list[str], list[str]]]] = {
    "integers": [
        (
            "7",
            ["7", "+7", "07", "7.0", "7.", "{7}", "(7)", r"\mathbf{7}", r"\text{7}", "7!/720", r"\sqrt{49}"],
            [
                "8",
                "-7",
                "7.1",
                "7.0000001",
                "6.9999999",
                "77",
                "7x",
                "x",
                "",
                "?",
                "7 7",
                r"7\pi",
                "7i",
                r"\frac{7}{0}",
            ],
        ),
        ("-1.0", ["-1", "−1", r"-\frac{3}{3}", "(-1)"], ["1", "-1.1", "-10"]),
        (
            "10000",
            [
                "10,000",
                "10{,}000",
                r"10\,000",
                r"10,\!000",
                "10 000",
                r"10\ 000",
                r"10\;000",
                "10~000",
                "10'000",
                "10_000",
                "１0000".replace("１", "1"),
                "10^4",
                "1e4",
                r"1.0\times10^{4}",
                r"10\text{ thousand}",
            ],
            ["10,00", "1000", "100,000", "10.000", "10,0000", "10, 000, 0"],
        ),
        (
            "58,500",
            ["58500", "58,500", r"58{,}500", r"58\,500", r"58.5 \text{ thousand}"],
            ["500,58", "58", "58,501", "58, 500, 1"],
        ),
        ("2107", ["2,107", r"2\,107", "2 107"], ["2, 107, 3", "109", "2+107", "21 07"]),
        (r"\$32,\!348", [r"\$32,348", "32348", r"32{,}348\text{ dollars}", r"32348 \$"], [r"\$32,349", "32.348"]),
        (
            r"2^{1009}",
            [r"2\cdot 2^{1008}", "2^1009", r"4^{1009/2}", r"\frac{2^{1010}}{2}"],
            ["2^{1008}", r"2^{1009}+1", "1009^2"],
        ),
        (
            r"\frac{100!}{2^{50}}",
            [r"100!/2^{50}", r"100! \cdot 2^{-50}", r"\frac{100\cdot 99!}{2^{50}}"],
            [r"\frac{100!}{2^{51}}", r"\frac{99!}{2^{50}}", r"\frac{100!}{2^{50}}+1"],
        ),
    ],
    "fractions and roots": [
        (
            r"\frac{1}{3}",
            [
                "1/3",
                r"\frac13",
                r"\dfrac{1}{3}",
                r"\tfrac{2}{6}",
                "0.333333",
                "0.3333333333",
                r"0.\overline{3}",
                r"0.333333\ldots",
                r"3^{-1}",
                "{1}/{3}",
                "(1/3)",
            ],
            ["0.33", "0.3333", "0.333334", "0.34", "3", r"-\frac13", r"\frac{1}{-3}"],
        ),
        (
            r"137 \frac{1}{2}",
            ["137.5", r"\frac{275}{2}", "137 1/2", r"137\tfrac12"],
            [r"\frac{137}{2}", "137", "137.51"],
        ),
        (
            r"3\sqrt{13}",
            [r"\sqrt{117}", r"\sqrt{13}\cdot 3", r"3 \sqrt 13", r"3\cdot 13^{1/2}", "3*sqrt(13)", "10.8166538264"],
            [r"\sqrt{13}", r"3\sqrt{12}", "10.8", r"\sqrt[3]{13}", r"3+\sqrt{13}"],
        ),
        (r"\frac{8}{\sqrt[3]{7}}", [r"8\cdot 7^{-1/3}", r"\frac{8\sqrt[3]{49}}{7}"], [r"\frac{8}{\sqrt{7}}"]),
        (
            r"\frac{15-8 \sqrt{3}}{33}",
            [r"\frac{5}{11}-\frac{8\sqrt3}{33}", r"-\frac{8\sqrt{3}-15}{33}"],
            [r"\frac{15+8\sqrt3}{33}"],
        ),
        (
            r"\frac{\log 2}{\log 2-\log 3}",
            [r"\frac{\ln 2}{\ln 2-\ln 3}", r"\frac{\ln 2}{\ln \frac{2}{3}}", r"\log_{2/3} 2"],
            [r"\frac{\log 2}{\log 3-\log 2}"],
        ),
        (r"\frac{1}{2004!}", [r"1/2004!", r"\frac{1}{2004\cdot 2003!}"], [r"\frac{1}{2005!}", "0", "0.0"]),
        (
            r"\frac{\pi}{2}",
            [r"\pi/2", r"0.5\pi", "1.5707963268", r"\frac12\pi", r"1/2 \pi", r"90^\circ"],
            [r"\pi", "1.57", "2", r"\frac{2}{\pi}"],
        ),
    ],
    "decimals": [
        (
            "3.14",
            ["3.14", "3.140", r"\approx 3.14", r"x\approx 3.14", r"\frac{157}{50}"],
            ["3.1", "3.15", "3.141", r"\pi", "314"],
        ),
        (
            ".0000672",
            ["0.0000672", r"6.72\times10^{-5}", "6.72e-5", r"6.72 \cdot 10^{-5}"],
            ["0.0000673", "0.000067", "0", r"6.72\times10^{-4}"],
        ),
        ("326.5", ["326.50", r"\frac{653}{2}"], ["326.6", "327", "326"]),
        ("4.4677", ["4.4677", "4.46770"], ["4.4678", "4.47"]),
        ("24.310", ["24.31", "24.310"], ["24.311", "24.3"]),
        ("1234567.8", [r"1{,}234{,}567.8", "1,234,567.8"], ["1234567.9", "1234567"]),
    ],
    "scientific notation": [
        (
            "3e8",
            [
                "3e8",
                "3E8",
                r"3\times 10^8",
                r"3 \cdot 10^{8}",
                "3 × 10⁸",
                "3x10^8",
                "3*10^8",
                "300000000",
                "300,000,000",
                r"3.0\times10^8",
                r"300\text{ million}",
                r"3\times10^{8}\text{ m/s}",
                r"3\times 10^{8}\ \mathrm{m\,s^{-1}}",
            ],
            ["3e9", r"3\times10^7", "3", r"3^8", "3.1e8", "2.99792458e8"],
        ),
        (
            "1.24e-8",
            [r"1.24\times10^{-8}", "0.0000000124", r"12.4\times 10^{-9}", r"1.24 \cdot 10^{-8}\text{ m}"],
            ["1.25e-8", "1.24e-7", "0", "1.24", "1.24e8", "0.00000005"],
        ),
        ("4.5e33", [r"4.5\times10^{33}", r"45\times10^{32}"], ["4.6e33", "4.5e34", "4.49e33"]),
        ("1.70e4", ["17000", "1.7e4", r"1.7 \times 10^4", "17,000"], ["1.71e4", "1.7", "17001"]),
        ("1e-5", [r"10^{-5}", "0.00001", r"\frac{1}{100000}", r"1\times10^{-5}"], ["1e-6", "4e-5", "10^5"]),
    ],
    "percent, currency and units": [
        (r"8 \%", ["8", r"8\%", "8%", "0.08", r"8\text{ percent}", r"\frac{2}{25}"], ["0.8", r"80\%", "800"]),
        ("0.5", [r"50\%", "50%", "1/2"], [r"5\%", "50"]),
        ("5", [r"5\%", "5 percent"], [r"500\%", r"0.05"]),
        (r"18.8^{\circ}", ["18.8", r"18.8^\circ", r"18.8\text{ degrees}", "18.8°"], ["18.9", r"188^\circ"]),
        (
            r"864 \mbox{ inches}^2",
            ["864", r"864\text{ in}^2", r"864\ \text{square inches}", r"864\text{ in.}^2"],
            ["865", r"864 \text{ cm}^2"],
        ),
        (r"5.4 \text{ cents}", ["5.4", r"5.4\text{ cents}", "5.40"], ["5.5", r"5.4\text{ dollars}", r"\$5.4"]),
        (
            "65",
            [
                r"65\text{ mph}",
                "65 mph",
                r"65\,\text{miles per hour}",
                r"65 \mathrm{~mph}",
                r"65\ \frac{mi}{h}".replace(r"\frac{mi}{h}", r"\text{mi/h}"),
            ],
            ["66 mph", r"65\text{ or }66", r"\text{mph}"],
        ),
        (
            r"\frac{270}7\text{ degrees}",
            [r"\frac{270}{7}", r"\frac{270}{7}^\circ", r"38\frac{4}{7}"],
            [r"\frac{271}{7}", "38.57"],
        ),
        (
            "10",
            [r"10\ \mathrm{m}", r"10\text{ m/s}^2", r"10\,\mathrm{kg\cdot m/s}", r"10 \text{ apples}"],
            [r"10\text{ or more}", r"\text{at least }10", "10x"],
        ),
    ],
    "several answers": [
        (
            "1,3,5",
            [
                "5,3,1",
                "1, 3, 5",
                r"\{1,3,5\}",
                r"1,3\text{ and }5",
                r"1, 3, \text{and } 5",
                "x=1,3,5",
                "x=1, x=3, x=5",
                r"x \in \{1,3,5\}",
                r"1 \text{ or } 3 \text{ or } 5",
                "1;3;5",
                r"\left\{5,1,3\right\}",
                r"x=1\text{ or }x=3\text{ or }x=5",
            ],
            ["1,3", "1,3,5,7", "1,3,3", "1,3,6", "(1,3,5)", "135", "9", "1,3,5,5", r"1,3,\ldots"],
        ),
        (r"-2,-2", ["-2,-2"], ["-2", "2,-2", "2,2"]),
        (r"$69$,$84$", ["69, 84", "84,69", r"69\text{ and }84"], ["6984", "69", "84", "69,85", "69,84,1"]),
        (r"$221,$8$", ["221, 8", "8,221", "221,8"], ["2218", "221", "8"]),
        (
            r"3 \pm 2 \sqrt{2}",
            [r"3+2\sqrt2, 3-2\sqrt2", r"3-2\sqrt{2}\text{ or }3+2\sqrt{2}", r"3\pm\sqrt{8}", r"x = 3 \pm 2\sqrt{2}"],
            [r"3+2\sqrt2", r"3\pm\sqrt2", r"2\pm3\sqrt2"],
        ),
        (
            r"\{1\pm\sqrt{5},-2\}",
            [r"-2, 1+\sqrt5, 1-\sqrt5", r"\{-2,1\pm\sqrt5\}"],
            [r"1\pm\sqrt5", r"\{1\pm\sqrt5,2\}"],
        ),
        (
            r"$90^{\circ}$,$60^{\circ}$",
            ["90,60", r"60^\circ, 90^\circ", r"60^{\circ}\text{ and }90^{\circ}"],
            ["90", "60,91"],
        ),
        (r"$a=2$, $a=-6-4 \sqrt{2}$", [r"2, -6-4\sqrt2", r"a=-6-4\sqrt{2}\text{ or }a=2"], ["2", r"2,-6+4\sqrt2"]),
        (r"41352,42351,51342", ["51342,42351,41352"], ["41352,42351"]),
        ("100,200", ["100, 200", r"\{100,200\}"], ["100"])
        if False
        else ("100, 200", ["100,200", r"200, 100"], ["100", "100200"]),
        (
            r"$x=\frac{1}{6} \pi+\pi k, \frac{1}{3} \pi+\pi k$",
            [
                r"\frac{\pi}{6}+k\pi, \frac{\pi}{3}+k\pi",
                r"x = \frac{\pi}{3} + \pi k, x=\frac{\pi}{6}+\pi k, k\in\mathbb{Z}",
            ],
            [r"\frac{\pi}{6}+k\pi"],
        ),
        ("2,-2", [r"\pm 2", r"\pm2", r"x=\pm 2", r"\{-2, 2\}"], [r"\pm 3", "2", r"\mp 3"]),
    ],
    "tuples, intervals, sets": [
        (
            "(2,4)",
            ["(2, 4)", r"\left(2,4\right)", "(x,y)=(2,4)", "(2.0,4)", r"(\frac{4}{2}, 4)", r"P=(2,4)"],
            ["(4,2)", "2,4", r"\{2,4\}", "[2,4]", "(2,4]", "(2,4,0)", "(2,5)", "24", "(2,4),(2,4)"],
        ),
        (
            "(1,1), (3,2)",
            [
                "(3,2),(1,1)",
                r"(1,1)\text{ and }(3,2)",
                r"\{(1,1),(3,2)\}",
                r"(x,y)\in\{(3,2),(1,1)\}",
                r"(a,b)=(1,1),(3,2)",
            ],
            ["(1,1)", "(1,1),(2,3)", "1,1,3,2"],
        ),
        (
            "(-\\infty,-5)",
            [r"(-\infty, -5)", "x<-5", r"x \in (-\infty,-5)", r"\{x: x<-5\}".replace(r"\{x: x<-5\}", r"-5>x")],
            [r"(-\infty,-5]", r"(-5,\infty)", r"x\le -5", r"(-\infty,5)"],
        ),
        (
            r"[2,5)",
            [r"2\le x<5", r"x\in[2,5)", r"5 > x \ge 2", r"\left[2,5\right)", r"[2,3]\cup[3,5)"],
            ["(2,5)", "[2,5]", r"2<x<5", r"[2,3)\cup(3,5)"],
        ),
        (
            r"(-\infty, 2) \cup (3, \infty)",
            [
                r"(3,\infty)\cup(-\infty,2)",
                r"x<2\text{ or }x>3",
                r"x \in (-\infty,2)\cup(3,\infty)",
                r"(-\infty,2) \cup (3,+\infty)",
            ],
            [r"(-\infty,2)", r"(-\infty,2]\cup(3,\infty)", "(2,3)", r"(-\infty,2),(3,\infty)".replace(",(", r"\cap(")],
        ),
        (
            r"$(-\infty, 0) \cup\{1\}$.",
            [r"(-\infty,0)\cup\{1\}", r"\{1\}\cup(-\infty,0)"],
            [r"(-\infty,0)", r"(-\infty,0]\cup\{1\}", r"(-\infty,1]"],
        ),
        (r"t(0,4]".join("$$"), ["(0,4]", r"t\in(0,4]", r"0<t\le 4"], ["(0,4)", "[0,4]"]),
        (r"\mathbb{R}", [r"(-\infty,\infty)", r"\mathbb{R}", r"x\in\mathbb{R}", "ℝ"], [r"\mathbb{Z}", r"(0,\infty)"]),
        (
            r"(-\infty,1)\cup(1,\infty)",
            [r"\mathbb{R}\setminus\{1\}", r"x\ne1", r"x \neq 1"],
            [r"\mathbb{R}", r"\mathbb{R}\setminus\{2\}"],
        ),
        (
            r"(-\sqrt{3}, \sqrt{3})",
            [r"\left(-\sqrt3,\sqrt3\right)", r"-\sqrt{3}<x<\sqrt{3}"],
            [r"(\sqrt3,-\sqrt3)", r"[-\sqrt{3},\sqrt{3}]"],
        ),
        (
            r"$(45^{\circ}, 60^{\circ}),(135^{\circ}, 60^{\circ})$",
            ["(45,60),(135,60)", r"(135^\circ,60^\circ),(45^\circ,60^\circ)"],
            ["(60,45),(135,60)"],
        ),
        (
            r"\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}",
            [
                r"\begin{bmatrix}-\frac13\\\frac23\\\frac53\end{bmatrix}",
                r"\begin{pmatrix}-1/3\\2/3\\5/3\end{pmatrix}",
                r"\left(\begin{array}{c}-1/3\\2/3\\5/3\end{array}\right)",
                r"\left(-\frac13,\frac23,\frac53\right)",
            ],
            [
                r"\begin{pmatrix}1/3\\2/3\\5/3\end{pmatrix}",
                r"\begin{pmatrix}-1/3&2/3&5/3\end{pmatrix}",
                r"\begin{pmatrix}2/3\\-1/3\\5/3\end{pmatrix}",
            ],
        ),
        (
            r"\begin{pmatrix} -1 & 0 \\ 0 & -1 \end{pmatrix}",
            [r"\begin{bmatrix}-1&0\\0&-1\end{bmatrix}", r"\begin{pmatrix}-1 & 0\\[4pt] 0 & -1\end{pmatrix}"],
            [r"\begin{pmatrix}1&0\\0&1\end{pmatrix}", r"\begin{pmatrix}-1&0\end{pmatrix}"],
        ),
        (r"\emptyset", [r"\varnothing", r"\{\}", r"\text{no solution}", "∅"], ["0", r"\{0\}"]),
    ],
    "expressions": [
        (
            r"\frac{n(n+1)(2 n+1)}{6}",
            [
                r"\frac{2n^3+3n^2+n}{6}",
                r"\frac16 n(n+1)(2n+1)",
                r"n(n+1)(2n+1)/6",
                r"\frac{n^3}{3}+\frac{n^2}{2}+\frac{n}{6}",
            ],
            [r"\frac{n(n+1)}{2}", r"\frac{n(n-1)(2n+1)}{6}", r"\frac{m(m+1)(2 m+1)}{6}"],
        ),
        (
            r"$m n-\lfloor m / 2\rfloor$",
            [r"mn-\left\lfloor\frac{m}{2}\right\rfloor", r"m(n-1)+\lceil m/2\rceil"],
            [r"mn-\frac m2", r"mn - \lceil m/2\rceil"],
        ),
        (
            r"$\binom{2n}{n}$",
            [r"\frac{(2n)!}{n!\,n!}", r"\dbinom{2n}{n}", r"{2n \choose n}"],
            [r"\binom{2n}{n-1}", r"\frac{(2n)!}{n!}"],
        ),
        (r"$\frac{d !}{2 k(d-k) !}$", [r"\frac{d!}{2k\,(d-k)!}"], [r"\frac{d!}{k(d-k)!}", r"\binom{d}{k}/2"]),
        (r"$2^{k-n}$", [r"\frac{2^k}{2^n}", "2^{-n+k}"], [r"2^{n-k}", "2^k-n"]),
        (
            r"$\left\lfloor\log _{2} n\right\rfloor+1$",
            [r"1+\lfloor\log_2 n\rfloor", r"\lfloor \log_2(2n)\rfloor", r"\lceil\log_2(n+1)\rceil"],
            [r"\log_2 n+1", r"\lceil\log_2 n\rceil"],
        ),
        (
            r"\sqrt{2} \cos (2 t-\pi / 4)",
            [r"\cos 2t+\sin 2t", r"\sqrt2\sin(2t+\pi/4)", r"\sqrt{2}\cos\left(2t-\frac{\pi}{4}\right)"],
            [r"\cos 2t-\sin 2t", r"\sqrt2\cos(2t)"],
        ),
        (
            r"\frac{1}{2a}(\exp{a*t} - \exp{-a*t})",
            [r"\frac{e^{at}-e^{-at}}{2a}", r"\frac{\sinh(at)}{a}", r"\frac{1}{a}\sinh at"],
            [r"\frac{e^{at}+e^{-at}}{2a}"],
        ),
        (
            r"I(0) e^{-\frac{t}{R C}}",
            [r"I(0)e^{-t/(RC)}", r"I(0)\exp\left(-\frac{t}{RC}\right)", r"I(0)e^{-t/RC}"],
            [r"e^{-t/RC}", "0", r"I(0)e^{-RCt}"],
        ),
        (
            "np.arcsin(10/13)",
            [r"\arcsin(10/13)", r"\sin^{-1}\left(\frac{10}{13}\right)", "0.8776364"],
            [r"\arcsin(13/10)", "0.88"],
        ),
        (
            r"\sqrt{4 \pi G \rho_{0} r_{0}^{2}}",
            [r"2r_0\sqrt{\pi G\rho_0}", r"r_0 \sqrt{4\pi G \rho_0}"],
            [r"2r_0\sqrt{\pi G\rho}", r"4 r_0\sqrt{\pi G\rho_0}"],
        ),
        (r"6 - 5i", ["-5i+6", r"6-5\mathrm{i}", "6-5 i"], ["6+5i", "6-5", "6-5j"]),
        (
            r"x_{0} \cos (\omega t)+$ $\dot{x}_{0} \sin (\omega t) / \omega",
            [r"x_0\cos\omega t+\frac{\dot{x}_0}{\omega}\sin\omega t"],
            [r"x_0\cos\omega t"],
        ),
        (
            r"\hbar \omega(v+1 / 2)-\frac{E_{0}^{2} e^{2}}{2 m \omega^{2}}",
            [r"\hbar\omega\left(v+\frac12\right)-\frac{e^2E_0^2}{2m\omega^2}"],
            [r"\hbar\omega\left(v+\frac12\right)"],
        ),
        ("p - q", ["-q+p", "p-q"], ["q-p", "p+q"]),
        (r"\cot x", [r"\frac{\cos x}{\sin x}", r"\frac{1}{\tan x}", r"\cot(x)"], [r"\tan x", r"\cot y"]),
        (r"$\sqrt{x}$", ["x^{1/2}", "x^{0.5}"], ["x", r"\sqrt{y}"]),
        (r"x^2", ["x*x", "x x", r"x\cdot x"], ["|x|^3", "2x", r"x^{2.0001}"]),
    ],
    "equations and names": [
        (
            "y = 2x + 3",
            ["y=2x+3", "2x+3", "2x-y+3=0", r"y-3=2x", r"f(x)=2x+3", r"x=\frac{y-3}{2}"],
            ["y=2x-3", "y=3x+2", "2x-3", "x=2y+3"],
        ),
        ("x=5", ["5", "x=5", "x = 5.0", r"2x=10"], ["y=5", "x=6", "x>5", "x"]),
        (
            "7",
            ["x=7", "m+n=7", "3+4=7", r"n = 3 + 4 = 7", r"\text{Area}=7", r"AB = 7", r"\angle ABC=7", "f(2)=7"],
            ["x=8", "3+5=7", "7=x+1", "x<7"],
        ),
        (
            r"5x - 7y + 11z + 4 = 0",
            [r"-5x+7y-11z=4", r"10x-14y+22z+8=0"],
            [r"5x-7y+11z=4", r"5x-7y+11z+4", r"5x-7y+11w+4=0"],
        ),
        (
            r"f(x)=\frac{1}{x}",
            ["1/x", r"f(x)=x^{-1}", r"y=\frac1x", r"f(x)=\frac{1}{x}\text{ for all }x>0"],
            ["x", "f(x)=-1/x"],
        ),
        (r"$f(n)=n$, $g(n)=1$", ["f(n)=n, g(n)=1", "g(n)=1, f(n)=n", "n, 1"], ["f(n)=1, g(n)=n", "f(n)=n"]),
        (r"$m_{\max }=n^{2}-n-1$", ["n^2-n-1", r"m=n^2-n-1", r"m_{\text{max}}=n^2-n-1"], ["n^2-n", r"k=n^2-n"]),
        (r"k \geqslant 2", [r"k\ge2", r"[2,\infty)", r"2\le k", r"k \geq 2"], ["k>2", r"k\le2", "2", r"k\ge3"]),
        (
            r"\frac{d x}{d t}=k x-a",
            [r"x'=kx-a", r"\dot{x}=kx-a", r"\frac{dx}{dt}-kx=-a", r"\frac{dx}{dt}-kx+a=0"],
            [r"x'=kx+a", "kx+a"],
        ),
        (
            r"\frac{d^{2} v_{o}}{d t^{2}}+\frac{v_{o}}{L C}=\frac{v_{i}}{L C}",
            [r"LC\frac{d^2v_o}{dt^2}+v_o=v_i", r"LC\ddot{v}_o+v_o=v_i"],
            [r"LC\frac{d^2v_o}{dt^2}-v_o=v_i"],
        ),
        ("MR=SRMC", ["MR=SRMC", "SRMC=MR"], ["MR=MC", "SRMC=LRMC"]),
        ("X_{d}=125-1.25 P", [r"125-1.25P", r"X_d=125-\frac{5}{4}P", "P=100-0.8X_d"], [r"125+1.25P"]),
    ],
    "written around the answer": [
        (
            r"\frac{1}{3}",
            [r"\frac{1}{3} \approx 0.333", r"x=\frac13\approx 0.3333", r"\frac{2}{6}=\frac{1}{3}"],
            [r"\frac{2}{3}\approx 0.667", r"\frac{1}{3}=0.333"],
        ),
        ("0.333", [r"\frac{1}{3} \approx 0.333"], [r"\frac{1}{2} \approx 0.333"]),
        ("5", [r"5\approx 5.0", "x=2+3=5", "n=10/2=2+3=5"], [r"7 \approx 5", "x=6=5", "6=5", "x=5=6=5"]),
        (
            "7",
            [r"\color{red}{7}", r"{\bf 7}", r"\displaystyle 7", r"\underline{7}", r"\(7\)", r"\boxed{7}"],
            [r"7 \pmod{9}", r"7 \text{ (approximately)}"],
        ),
        (r"25^{\circ} \mathrm{C}", ["25", r"25^\circ", r"25^\circ\text{C}"], ["26", r"25^\circ \mathrm{F}"]),
        ("3e8", [r"3\times 10^8 \frac{\text{m}}{\text{s}}", r"3 \times 10^8 m/s"], [r"\frac{3}{\text{s}}"]),
        ("f(x)=-1", [r"f(x)\equiv -1"], [r"-1 \pmod{7}", r"f(x) \equiv 1"]),
        ("9.8", [r"9.8\,\frac{\mathrm{m}}{\mathrm{s}^{2}}", "9.8 m/s^2"], [r"9.8\frac{m}{s}"]),
        ("1.25", [r"125\%", r"\frac54"], [r"12.5\%", "125"]),
        ("150", [r"150\,\mathrm{J/(kg\,K)}", r"150\ \text{cm}^3"], [r"150\ \Omega", "150, 151"]),
        (r"\frac{a}{2}", ["1/2a", "a/2", "0.5a"], [r"\frac{2}{a}"]),
        (r"\frac{1}{2a}", ["1/2a", "1/(2a)"], ["1/a"]),
        ("0", [r"\sin \pi", r"\sqrt{2}-\sqrt{2}", "-0", "0.0", r"0^\circ"], ["10^{-30}", "0.0000001", "1e-300"]),
        (r"\frac{1}{2}", [r"\sin 30^\circ", r"\cos\frac{\pi}{3}", r"\sin\left(\frac{\pi}{6}\right)"], [r"\sin 30"]),
        ("-2", [r"\sqrt[3]{-8}", "-2"], [r"\sqrt[3]{8}"]),
        ("i", [r"\sqrt{-1}", r"\mathrm{i}"], ["-i", "1"]),
    ],
    "as models write them": [
        (
            r"\frac{3}{56}",
            [r"\nicefrac{3}{56}", r"{3 \over 56}", r"5.35714286\%", r"\text{Probability} = \frac{3}{56}"],
            [r"{56 \over 3}", r"0.0535714286\%", r"\frac{3}{56} \approx 0.1"],
        ),
        (r"1\frac{4}{5}", [r"1{\frac{4}{5}}", "1.8"], [r"{1}{\frac{5}{4}}"]),
        (r"1\frac{2}{3}", ["1.666667", r"1.\overline{6}"], ["1.67", "1.666665"]),
        (r"0.1\overline{6}", [r"\frac16", "0.1666667"], ["0.167", r"0.\overline{16}"]),
        (r"7:30 \text{ p.m.}", ["7:30", r"\text{7:30 p.m.}"], [r"7:30 \text{ a.m.}", r"14:60 \text{ p.m.}", "8:30"]),
        ("x=3,y=4", ["(x,y)=(3,4)", "y=4, x=3"], ["(x,y)=(4,3)", "(3,4,5)"]),
        (r"\infty", [r"\text{infinity}"], [r"-\infty", r"\text{undefined}"]),
        (r"\begin{pmatrix} 2 & 0 \\ 1 & 3 \end{pmatrix}", [], [r"\begin{vmatrix} 2 & 0 \\ 1 & 3 \end{vmatrix}", "6"]),
        (r"3\sqrt{13}", ["10.816653826391969"], ["10.816653826391979", "10.8166538269"]),
        (r"5.4 \text{ cents}", ["5.4¢"], ["5.5¢"]),
        ("10", [r"10\text{ (units)}", r"10^\text{th}"], [r"10\text{ (approximately)}"]),
        (r"\text{ellipse}", [r"\text{an ellipse}", "the ellipse"], [r"\text{a parabola}", r"\text{not an ellipse}"]),
        (r"\mathbb{R}", [r"\text{all real numbers}"], [r"\text{all integers}"]),
        (r"(-\infty,0)\cup(0,\infty)", [r"\mathbb{R} - \{0\}"], [r"\mathbb{R} - \{1\}"]),
        (r"k \geqslant 2", [r"\text{all } k \ge 2", r"\{k \mid k \ge 2\}"], [r"\text{all } k > 2"]),
        (
            r"\angle B E A_{1}=90,\angle A E B_{1}=90",
            [r"\angle BEA_1=90^\circ, \angle AEB_1=90^\circ"],
            [r"\angle BEA_1=90^\circ, \angle AEB_1=80^\circ"],
        ),
        (
            r"m_{p} c^{2}\left(\gamma^{2}-1\right) \sin ^{2} \theta",
            [r"m_pc^2(\gamma^2-1)\sin^2\theta", r"(\gamma^2-1)m_pc^2(\sin\theta)^2"],
            [r"m_pc^2(\gamma-1)\sin^2\theta", r"mpc^2(\gamma^2-1)\sin^2\theta"],
        ),
        (
            r"m l \ddot{\theta}(t)-m g \sin \theta(t)=f(t) \cos \theta(t)",
            [r"ml\ddot{\theta}-mg\sin\theta=f\cos\theta", r"ml\ddot\theta(t)=mg\sin\theta(t)+f(t)\cos\theta(t)"],
            [r"ml\ddot{\theta}+mg\sin\theta=f\cos\theta", r"ml\dot{\theta}-mg\sin\theta=f\cos\theta"],
        ),
        (r"x^{\prime}+\frac{r}{V} x-r c=0", [r"x'(t)+\frac{r}{V}x(t)-rc=0"], [r"x'(t)-\frac{r}{V}x(t)-rc=0"]),
        (
            "SRAC=LRAC",
            [r"\text{SRAC}=\text{LRAC}", r"\mathrm{LRAC}=\mathrm{SRAC}"],
            ["LRAC", r"\text{SRAC}=\text{LRMC}"],
        ),
        (r"x \in [-2,7]", [r"-2 \le x \land x \le 7"], [r"\text{not } x \in [-2,7]", r"17 \to x \in [-2,7]"]),
    ],
    "words, ratios, bases": [
        (
            r"\text{Evelyn}",
            ["Evelyn", "evelyn", r"\text{ Evelyn }", r"\textbf{Evelyn}", r"\text{Evelyn.}"],
            ["Eve", "Evelyn and Carla", "5"],
        ),
        (r"\text{(C)}", ["C", "(C)", r"\textbf{(C)}", r"\text{C}", "(c)"], ["B", "(D)", "3"]),
        (
            r"\text{even}",
            ["even", r"\textit{Even}", r"\text{EVEN}"],
            ["odd", r"\text{not even}", r"\text{even function}"],
        ),
        ("m", ["m", r"\text{m}", r"\mathrm{m}"], ["M", r"\text{M}", "n", "mm"]),
        ("RC", ["RC", "CR", r"R \cdot C"], ["rc", "Rc", r"\text{rc}"]),
        (r"\frac{N}{2} \text{ cm}", [r"\frac{N}{2}", r"N/2\text{ cm}"], [r"\frac{n}{2} \text{ cm}"]),
        ("yes", ["Yes", r"\text{YES}"], ["no", "yess"]),
        ("3:2", ["3:2", "6:4", "3 : 2", r"\frac32", r"3\colon 2"], ["2:3", "3:1", "5"]),
        ("12:00", ["12:00"], ["12:30", "24:00", "12"]),
        ("2516_8", ["2516_8", "2516_{8}", "2516", r"2516_{\text{eight}}"], ["2516_7", "2517_8", "1358"]),
        ("70", [r"70_{10}"], ["70_9"]),
    ],
}
RIGHT = [(kind, gold, answer) for kind, rows in TABLE.items() for gold, right, _ in rows for answer in right]
WRONG = [(kind, gold, answer) for kind, rows in TABLE.items() for gold, _, bad in rows for answer in bad]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["expected"] is not None], ids=lambda case: case["name"]
)
def test_shared_case(case):
    verdict = judge(case["gold"], case["prediction"], rule_of(None)).verdict
    assert verdict == ("right" if case["expected"] else "wrong")


@pytest.mark.parametrize(("kind", "gold", "answer"), RIGHT)
def test_right(kind, gold, answer):
    judgement = judge(gold, answer, rule_of(None))
    assert judgement.verdict == "right", judgement.reason


@pytest.mark.parametrize(("kind", "gold", "answer"), WRONG)
def test_wrong(kind, gold, answer):
    assert judge(gold, answer, rule_of(None)).verdict == "wrong"
